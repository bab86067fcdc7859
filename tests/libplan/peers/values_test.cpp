// Every value that the peers' own planners give for their published profiles.
#include "libplan/peers/peer.h"
#include "libplan/peers/pipedream_text.h"
#include "tests/support/test_data.h"

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/values");

namespace pp::plan::values_test {
namespace {

PeerPlan solve(const Profile& profile, const PeerOptions& options) {
  const auto result = plan_as_peer(profile, options);
  REQUIRE(std::holds_alternative<PeerPlan>(result));
  const PeerPlan plan = std::get<PeerPlan>(result);
  CHECK(plan.lower_bound <= plan.objective);
  return plan;
}

/// The peer's own search gives `seconds`; ours is never worse.
PeerPlan check_value(const Profile& profile, PeerOptions options, double seconds, double tolerance) {
  const PeerPlan plan = solve(profile, options);
  CHECK(plan.objective.count() == doctest::Approx(seconds).epsilon(tolerance));
  options.strategy = PeerStrategy::automatic;
  options.machines = MachinesRule::at_most;
  CHECK(solve(profile, options).objective <= plan.objective);
  return plan;
}

struct PipedreamRow {
  const char* profile;
  std::vector<PeerLevel> levels;
  double seconds;
  const char* replicas;  ///< empty: not given
  double tolerance = 1e-9;
};

void check_pipedream(PeerModel model, const std::vector<PipedreamRow>& rows) {
  for (const PipedreamRow& row : rows) {
    CAPTURE(row.profile);
    CAPTURE(row.seconds);
    PeerOptions options;
    options.model = model;
    options.levels = row.levels;
    const PeerPlan plan = check_value(pp::test::peer_profile(row.profile), options, row.seconds, row.tolerance);
    if (*row.replicas != '\0') CHECK(replicas_text(plan) == row.replicas);
  }
}

std::vector<PeerLevel> flat(int devices, double bandwidth) { return {{devices, BytesPerSecond(bandwidth)}}; }

}  // namespace

TEST_CASE("PipeDream's released optimizer, flat and over two levels") {
  check_pipedream(
      PeerModel::pipedream_code,
      {{"vgg16", flat(4, 1e9), 0.205520896, "3-1"},
       {"vgg16", flat(4, 1.25e9), 0.176349165867, "3-1"},
       {"vgg16", flat(8, 1e9), 0.103833170286, "7-1"},
       {"vgg16", flat(16, 3.125e9), 0.045524807826, "15-1"},
       {"vgg16", {{8, BytesPerSecond(4294967296)}, {2, BytesPerSecond(2147483648)}}, 0.078392462243, ""},
       {"alexnet", flat(4, 1e9), 0.034217141333, "3-1"},
       {"resnet50", flat(4, 1e9), 0.162880924, "2-2"},
       {"gnmt", flat(4, 1.25e9), 0.02587, "1-1-1-1", 2e-4}});
}

TEST_CASE("PipeDream's published costs") {
  check_pipedream(PeerModel::pipedream_paper, {{"vgg16", flat(8, 1.25e9), 0.088874286, "7-1", 1e-8},
                                               {"vgg16", flat(16, 1.25e9), 0.082208358, "15-1", 1e-8},
                                               {"alexnet", flat(8, 1.25e9), 0.015099494, "7-1", 3e-8}});
}

TEST_CASE("dnn-partitioning's dynamic program, and resnet50 on two accelerators does not fit") {
  struct Row {
    const char* profile;
    int devices;
    double ms;
  };
  for (const Row& row : {Row{"bert24_training", 2, 109.918}, Row{"bert24_training", 4, 58.5458},
                         Row{"bert24_training", 6, 41.7458}, Row{"bert24_training", 8, 33.3788},
                         Row{"resnet50_training", 4, 117.296}, Row{"resnet50_training", 6, 80.4549},
                         Row{"resnet50_training", 8, 59.1656}, Row{"resnet50_training", 2, 0}}) {
    CAPTURE(row.profile);
    CAPTURE(row.devices);
    const Profile profile = pp::test::peer_profile(row.profile);
    PeerOptions options;
    options.model = PeerModel::dnn_partitioning;
    options.levels = {{row.devices, BytesPerSecond(0)}};
    if (row.ms > 0) {
      const PeerPlan plan = check_value(profile, options, row.ms / 1e3, 5e-6);
      CHECK(plan.lower_bound == plan.objective);
    } else {
      const Infeasible none = std::get<Infeasible>(plan_as_peer(profile, options));
      CHECK(none.reason.starts_with("does not fit 2 devices of 17185374208 bytes: even the best split leaves"));
      CHECK(none.short_by > Bytes(0));
    }
  }
}

TEST_CASE("Piper's optimizer, with tensor-parallel stages where the limit is tight, and what does not fit") {
  struct Row {
    const char* profile;
    int devices;
    double gibibytes;
    int batch;
    double seconds;  ///< 0: does not fit
  };
  // Bandwidth 25 GiB/s, a batch of 7680 and of 1920 micro-batches. bert32a100: the peer's last stage, of four
  // transformer layers on 3 replicas of 2 devices, decides. On one device each the least is 0.0443: a replica
  // that keeps the weights and one micro-batch of two layers, 2 * 912.5 + 3 * 2 * 48.2 MB, has no room for
  // more.
  for (const Row& row :
       {Row{"piper_resnet", 8, 4, 7680, 73.4932860001}, Row{"piper_resnet", 8, 8, 7680, 63.4335366048},
        Row{"piper_resnet", 16, 1.5, 7680, 0}, Row{"piper_resnet", 16, 2, 7680, 76.5213125},
        Row{"piper_resnet", 16, 16, 7680, 29.2788559739}, Row{"piper_resnet", 32, 1.5, 7680, 50.9771953125},
        Row{"piper_resnet", 64, 1, 7680, 0}, Row{"piper_resnet", 64, 4, 7680, 8.66677284849},
        Row{"piper_bert32a100", 64, 2, 1920, 0.0320300812349}}) {
    CAPTURE(row.profile);
    CAPTURE(row.devices);
    CAPTURE(row.gibibytes);
    PeerOptions options;
    options.model = PeerModel::piper;
    options.levels = flat(row.devices, 25.0 * (1LL << 30));
    options.memory_limit = Bytes(static_cast<std::int64_t>(row.gibibytes * (1LL << 30)));
    options.micro_batches_in_batch = row.batch;
    const auto result = plan_as_peer(pp::test::peer_profile(row.profile), options);
    REQUIRE(std::holds_alternative<PeerPlan>(result) == (row.seconds > 0));
    if (row.seconds > 0)
      CHECK(std::get<PeerPlan>(result).objective.count() == doctest::Approx(row.seconds).epsilon(1e-9));
  }
}

TEST_CASE("DAPPLE's planner") {
  struct Row {
    const char* file;
    int batch;
    int mini_batch;
    int servers, devices;
    double seconds;
    const char* replicas;
    double tolerance;
  };
  for (const Row& row : {Row{"vgg-19-pbs-32", 32, 2048, 2, 8, 0.76515, "15-1", 1e-5},
                         Row{"bert-48-pbs-2", 2, 64, 2, 8, 0.89164, "8-8", 1e-5},
                         Row{"bert-48-pbs-2", 2, 64, 16, 1, 1.13, "1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1", 1e-3}}) {
    CAPTURE(row.file);
    const auto text = pp::test::dapple_text(row.file);
    if (!text) return;
    PeerOptions options;
    options.model = PeerModel::dapple;
    options.levels = {{row.devices, BytesPerSecond(0)}, {row.servers, BytesPerSecond(0)}};
    options.mini_batch = row.mini_batch;
    const PeerPlan plan =
        check_value(import_pipedream(*text, row.file, row.batch), options, row.seconds, row.tolerance);
    CHECK(replicas_text(plan) == row.replicas);
  }
}

}  // namespace pp::plan::values_test

TEST_SUITE_END();
