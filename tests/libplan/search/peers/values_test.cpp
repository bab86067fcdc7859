// Every value that the peers' own planners give for their published profiles. Skipped where the profiles are
// absent.
#include <filesystem>
#include <iostream>

#include "libplan/interop/dnn_partitioning_json.h"
#include "libplan/interop/pipedream_text.h"
#include "libplan/search/peers/peer.h"
#include "libprofile/core/file.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/peers/values");

namespace pp::plan {
namespace {

std::optional<std::string> peer_file(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(PP_SHARED_DATA) / "peer-profiles" / name;
  if (std::filesystem::exists(path)) return read_file(path);
  std::cout << "SKIPPED: " << path.string() << " is not there\n";
  return std::nullopt;
}

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
    const auto text = peer_file(std::string("pipedream/") + row.profile + ".txt");
    if (!text) return;
    PeerOptions options;
    options.model = model;
    options.levels = row.levels;
    const PeerPlan plan =
        check_value(import_pipedream(*text, row.profile, 1), options, row.seconds, row.tolerance);
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
    const auto text = peer_file(std::string("dnn-partitioning/") + row.profile + ".json");
    if (!text) return;
    const Profile profile = import_dnn_partitioning(*text, row.profile, 1);
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
    const auto text = peer_file(std::string("dapple/") + row.file + ".txt");
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

}  // namespace pp::plan

TEST_SUITE_END();
