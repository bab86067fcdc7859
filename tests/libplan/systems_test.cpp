// What pipeline systems promise of their lists, times and partitions: of a table of 35 statements, one row per
// system, a case for each row that can be tested without a training, named after it. What rows say of trainings
// is tested by running: tests/librun/systems_test.cpp names the files. tests/scripts/systems_test.py sees to it
// that no row is left out.
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "libplan/peers/dapple.h"
#include "libplan/peers/input.h"
#include "libplan/peers/strategy.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/program_text.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/file.h"
#include "tests/libplan/peers/support.h"
#include "tests/libplan/schedule/golden_cases.h"
#include "tests/libplan/simulate/support.h"

#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace pp::plan::systems_test {
namespace {

using nlohmann::json;
using test::error_of;
using test::golden_case;
using test::straight;
using test::without_updates;
using Texts = std::vector<std::string>;

Texts lists(const ProgramSet& set) {
  Texts texts;
  for (const Program& program : set.workers) texts.push_back(without_updates(program));
  return texts;
}

Texts golden_lists(const std::string& name) {
  return golden_case("program", name).at("expected").at("programs");
}

SimulationResult unit_run(const ProgramSet& set, int chunks = 1) {
  return simulate(test::equal_stages(set, chunks));
}

std::vector<double> peaks(const ProgramSet& set) {
  std::vector<double> peaks;
  for (const Program& program : set.workers) peaks.push_back(peak_in_flight(program, 1));
  return peaks;
}

int count(const Program& program, OpKind kind, int stage) {
  return static_cast<int>(std::ranges::count_if(
      program, [&](const Op& op) { return op.kind == kind && op.stage == StageId{stage}; }));
}

TEST_SUITE("libplan/systems") {
  TEST_CASE("row 7: skip connections") {
    // a, b, c, d on four devices, d reads a too: 1 MB of a go to b and to d, 10 of b to c, 100 of c to d.
    const Profile profile =
        test::make_profile({{{1, 2, 0, 1'000'000}, {1, 2, 0, 10'000'000}, {1, 2, 0, 100'000'000}, {1, 2}},
                            {{0, 1}, {1, 2}, {2, 3}, {0, 3}},
                            {1}});
    PlanRequest request;
    request.mini_batch = 1;
    request.schedule = "gpipe";
    request.cuts = {1, 2, 3};
    const auto found = find_plan(profile, test::make_cluster(4), request);
    std::map<std::pair<int, int>, std::int64_t> sent;
    for (const LinkPrediction& link : std::get<Plan>(found).predicted.links)
      sent[{number(link.from), number(link.to)}] = link.bytes_per_step.value;
    const std::map<std::pair<int, int>, std::int64_t> expected{
        {{0, 1}, 1'000'000},   {{1, 0}, 1'000'000},   {{1, 2}, 10'000'000}, {{2, 1}, 10'000'000},
        {{2, 3}, 100'000'000}, {{3, 2}, 100'000'000}, {{0, 3}, 1'000'000},  {{3, 0}, 1'000'000}};
    CHECK(sent == expected);
  }

  TEST_CASE("row 9: Lingvo partitioner") {
    // Layer i goes to min(floor(h_i K), K-1), h_i the share of the layers up to and with it.
    test::Random random(9);
    for (int round = 0; round < 100; ++round) {
      const int layers = random.integer(1, 10), blocks = random.integer(1, layers);
      const std::vector<double> costs = random.values(layers, 20, false);
      const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
      std::vector<int> expected(at(blocks), 0);
      double sum = 0;
      for (const double cost : costs)
        ++expected[at(std::min(static_cast<int>((sum += cost) / total * blocks), blocks - 1))];
      CHECK(lingvo_partition(costs, blocks) == expected);
    }
  }

  TEST_CASE("row 13: 1F1B asynchronous") {
    const ProgramSet six = program_set({"pipedream", {1, 1, 1, 1}, 1}, 6);
    CHECK(lists(six) == golden_lists("PipeDream 1-1-1-1 J6"));
    CHECK(peaks(six) == std::vector<double>{4, 3, 2, 1});
    // F + B = 3 for every micro-batch: nobody waits.
    CHECK(steady_period(test::equal_stages(program_set({"pipedream", {1, 1, 1, 1}, 1}, 60))).count() ==
          test::approx(3));
  }

  TEST_CASE("row 20: DAPPLE planner") {
    // Like VGG-19: convolutions with the time, a pool, and layers with nearly all weights, whose time is what
    // each of the other devices has of the convolutions. One device per server: weights that only the last
    // device holds are not reduced.
    for (const int servers : {4, 8}) {
      std::vector<test::LayerRow> layers(16, {2, 4, 5'000'000, 1'000'000});
      layers.push_back({0, 0, 0, 100'000});
      const double forward = 16.0 * 2 / (servers - 1) / 2;
      layers.push_back({forward, 2 * forward, 400'000'000, 16'000});
      layers.push_back({forward, 2 * forward, 80'000'000, 16'000});
      PeerOptions options;
      options.model = PeerModel::dapple;
      options.levels = {{1, BytesPerSecond(0)}, {servers, BytesPerSecond(0)}};
      options.mini_batch = 2048;
      CHECK(replicas_text(*test::plan_of(test::make_profile({layers, {}, {32}}), options)) ==
            std::to_string(servers - 1) + "-1");
    }
  }

  TEST_CASE("row 25: inference") {
    for (int k = 1; k <= 6; ++k) {
      for (int m = 1; m <= 9; ++m) CHECK(unit_run(straight("inference", k, m)).makespan == Seconds(m + k - 1));
    }
    for (const json& entry : pp::test::golden("token_generation")) {
      const json &inputs = entry.at("inputs"), &expected = entry.at("expected");
      const int stages = inputs.at("stages"), groups = inputs.at("sequence_groups"),
                tokens = inputs.at("tokens");
      CHECK(generation_ticks(stages, groups, tokens, true) == expected.at("barrier_ticks").get<int>());
      CHECK(generation_ticks(stages, groups, tokens, false) == expected.at("queued_ticks").get<int>());
    }
  }

  TEST_CASE("row 29: SHAT is not implemented, and the tool says so") {
    CHECK(error_of([] {
            require_schedule("shat");
          }).starts_with("schedule shat: SHAT is left out: its update rule is not published"));
  }

  TEST_CASE("what other systems call a schedule is answered with its name here") {
    for (const auto& [theirs, ours] :
         std::vector<std::pair<std::string, std::string>>{{"zerobubble", "zb-h1"},
                                                          {"ZBVZeroBubble", "zb-v"},
                                                          {"Interleaved1F1B", "interleaved"},
                                                          {"zero-bubble", "zb-h1"},
                                                          {"PipeDream-2BW", "2bw"}}) {
      CHECK(error_of([&] { require_schedule(theirs); }) ==
            "schedule \"" + theirs + "\" is called " + ours + " here; pp-plan schedules lists what there is");
      CHECK_NOTHROW(require_schedule(ours));
    }
  }

  TEST_CASE("row 30: hybrid dp x pp, its lists") {
    // Two pipelines of two stages over eight micro-batches: each the list of one pipeline over four, then the
    // sum over both.
    const ProgramSet one = straight("1f1b", 2, 4), both = program_set({"hybrid", {2, 2}, 8});
    REQUIRE(both.workers.size() == 4);
    for (std::size_t w = 0; w < 4; ++w) {
      Program expected = one.workers[w / 2];
      for (Op& op : expected) {
        if (has_micro_batch(op.kind)) op.micro_batch = 2 * op.micro_batch + static_cast<int>(w % 2);
      }
      CHECK(without_updates(both.workers[w]) == without_updates(expected));
      CHECK(count(both.workers[w], OpKind::all_reduce, static_cast<int>(w / 2)) == 1);
    }
  }

  TEST_CASE("row 31: interleaved") {
    // Megatron's rule for turn k of worker r: chunk (k % Kv)/K, backwards v-1 less it, micro-batch (k/Kv)K +
    // k % K; warm-up 2(K-r-1) + (v-1)K.
    for (const auto& [k, v, m] : {std::tuple{2, 2, 4}, {4, 2, 8}, {3, 3, 6}, {4, 3, 4}}) {
      ScheduleRequest request{"interleaved", std::vector<int>(at(k), 1), m};
      request.chunks_per_worker = v;
      Texts expected;
      for (int r = 0; r < k; ++r) {
        const auto turn = [&, k = k, v = v](OpKind kind, int t) {
          const int chunk = t % (k * v) / k;
          const int stage = (kind == OpKind::forward ? chunk : v - 1 - chunk) * k + r;
          return Op{kind, StageId{stage}, t / (k * v) * k + t % k};
        };
        Program program;
        const int warm = std::min(2 * (k - r - 1) + (v - 1) * k, m * v);
        for (int t = 0; t < warm; ++t) program.push_back(turn(OpKind::forward, t));
        for (int t = 0; t < m * v; ++t) {
          if (warm + t < m * v) program.push_back(turn(OpKind::forward, warm + t));
          program.push_back(turn(OpKind::backward, t));
        }
        expected.push_back(to_text(program));
      }
      CHECK(lists(program_set(request)) == expected);
    }
    CHECK(error_of([] { straight("interleaved", 4, 6); }) ==
          "schedule interleaved: micro_batches = 6 is not a multiple of 4 workers; use 4 or 8, or group = 6");
  }

  TEST_CASE("row 32: looped BFS") {
    ScheduleRequest request{"looped-bfs", {1, 1, 1}, 4};
    request.chunks_per_worker = 2;
    Texts expected;
    for (int r = 0; r < 3; ++r) {
      Program program;
      for (const int chunk : {0, 1}) {
        for (const int m : {0, 1, 2, 3}) program.push_back({OpKind::forward, StageId{chunk * 3 + r}, m});
      }
      for (const int chunk : {1, 0}) {
        for (const int m : {3, 2, 1, 0}) program.push_back({OpKind::backward, StageId{chunk * 3 + r}, m});
      }
      expected.push_back(to_text(program));
    }
    CHECK(lists(program_set(request)) == expected);
  }

  TEST_CASE("row 34: DualPipeV, Chimera") {
    for (int k = 1; k <= 6; ++k) {
      for (int m = 2 * k; m <= 3 * k + 2; ++m) CHECK_NOTHROW(validate(straight("dualpipe-v", k, m)));
    }
    for (const int k : {2, 4, 6, 8}) {
      for (int m = k; m <= 4 * k; m += k) {
        const ProgramSet set = straight("chimera", k, m);
        CHECK_NOTHROW(validate(set));
        SimulationInput slots = test::equal_stages(set);
        for (StageCosts& stage : slots.stages) stage = test::costs(1, 1);
        CHECK(simulate(slots).bubble_fraction == test::approx((k - 2.0) / (2 * m + k - 2)));
      }
    }
  }

  TEST_CASE("row 35: plans come and go as CSV") {
    for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v", "chimera"}) {
      INFO(name);
      const ProgramSet set = straight(name, 2, 4);
      const ProgramSet read = parse_csv(to_csv(set));
      CHECK(lists(read) == lists(set));
      CHECK_NOTHROW(validate(read));
    }
    CHECK(to_csv(straight("zb-h1", 1, 1)) == "0F0,0I0,0W0\n");
    CHECK(error_of([] { validate(parse_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n")); }) ==
          "plan: deadlock after 2 of 10 operations: worker 0 in receive of B0.0 and worker 1 in receive of "
          "F1.1 wait for each "
          "other\n"
          "  worker 0: next receive of B0.0 needs send of B1.0 (worker 1)\n"
          "  worker 1: next receive of F1.1 needs send of F0.1 (worker 0)");
  }
}

}  // namespace
}  // namespace pp::plan::systems_test
