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
#include "libplan/report/pipeline_study.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/program_text.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/file.h"
#include "libprofile/core/index.h"
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

/// Over every choice of cuts.
double least_largest_block(const std::vector<double>& costs, int blocks) {
  double least = std::numeric_limits<double>::infinity();
  for (unsigned cuts = 0; cuts < 1U << (costs.size() - 1); ++cuts) {
    int used = 1;
    double largest = 0, sum = costs.front();
    for (std::size_t i = 1; i < costs.size(); ++i) {
      const bool cut = (cuts >> (i - 1) & 1U) != 0;
      used += cut ? 1 : 0;
      sum = cut ? costs[i] : sum + costs[i];
      largest = std::max(largest, sum);
    }
    if (used == blocks) least = std::min(least, std::max(largest, costs.front()));
  }
  return least;
}

double largest_block(const std::vector<double>& costs, const std::vector<int>& lengths) {
  double largest = 0;
  auto begin = costs.begin();
  for (const int length : lengths) {
    largest = std::max(largest, std::accumulate(begin, begin + length, 0.0));
    begin += length;
  }
  return largest;
}

TEST_SUITE("libplan/systems") {
  TEST_CASE("row 1: naive model parallelism") {
    for (int k = 1; k <= 8; ++k)
      CHECK(unit_run(straight("naive", k, 1)).bubble_fraction == test::approx((k - 1.0) / k));
    CHECK(error_of([] { straight("naive", 2, 4); }).find("needs micro_batches = 1, found 4") !=
          std::string::npos);
  }

  TEST_CASE("row 4: GPipe") {
    for (int k = 1; k <= 8; ++k) {
      for (int m = 1; m <= 32; ++m) {
        const ProgramSet set = straight("gpipe", k, m);
        CAPTURE(k);
        CAPTURE(m);
        CHECK(unit_run(set).bubble_fraction == test::approx((k - 1.0) / (m + k - 1)));
        CHECK(peaks(set) == std::vector<double>(set.workers.size(), m));
      }
    }
  }

  TEST_CASE("row 5: re-materialisation") {
    std::vector<Bytes> peaks;
    for (const auto& [mode, again] :
         {std::pair{Recompute::always, 8}, {Recompute::except_last, 7}, {Recompute::never, 0}}) {
      ScheduleRequest request{"gpipe", {1, 1, 1}, 8};
      request.recompute = {mode};
      SimulationInput input = test::equal_stages(program_set(request));
      for (int s = 0; s < 3; ++s) {
        CHECK(count(input.programs.workers[at(s)], OpKind::recompute, s) == again);
        input.stages[at(s)].saved = Bytes(10);
        input.stages[at(s)].input = Bytes(1);
      }
      peaks.push_back(simulate(input).memory.front().saved);
    }
    // Eight inputs and one micro-batch; its inputs, and the last one kept, while another runs again; all.
    CHECK(peaks[0] < peaks[1]);
    CHECK(peaks[1] < peaks[2]);
    CHECK(peaks[2] == Bytes(88));
  }

  TEST_CASE("row 6: balance by time, by size, by hand") {
    for (const json& entry : pp::test::golden("block_partition")) {
      INFO(entry.at("name").get<std::string>());
      const std::vector<double> costs = entry.at("inputs").at("costs");
      const std::vector<int> sizes = balance_exactly(costs, entry.at("inputs").at("parts"));
      CHECK(std::ranges::count(entry.at("expected").at("optimum_sizes"), json(sizes)) == 1);
    }
    test::Random random(6);
    for (int layers = 1; layers <= 12; ++layers) {
      const std::vector<double> costs = random.values(layers, 20, true);
      for (int blocks = 1; blocks <= layers; ++blocks) {
        const std::vector<int> sizes = balance_exactly(costs, blocks);
        CHECK(std::ranges::min(sizes) > 0);
        CHECK(largest_block(costs, sizes) == test::approx(least_largest_block(costs, blocks)));
      }
    }
    // 3, 1, 1, 1 ms and 1, 1, 1, 5 MB: by time 1|3, by size 3|1, by hand as asked.
    const Profile profile = test::make_profile(
        {{{1, 2, 0, 1'000'000}, {0, 1, 0, 1'000'000}, {0, 1, 0, 1'000'000}, {0, 1, 0, 5'000'000}}, {}, {1}});
    PlanRequest request;
    request.stages = 2;
    const Cluster two = test::make_cluster(2);
    CHECK(narrowed(profile, two, request, Strategy::balance_by_time).cuts == std::vector<int>{1});
    CHECK(narrowed(profile, two, request, Strategy::balance_by_size).cuts == std::vector<int>{3});
    request.cuts = {2};
    CHECK(narrowed(profile, two, request, Strategy::manual).cuts == std::vector<int>{2});
  }

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
    const Profile profile = test::make_profile({{{9, 1}, {1, 1}, {1, 1}, {1, 1}}, {}, {1}});
    PlanRequest request;
    request.stages = 4;
    CHECK(error_of([&] {
            narrowed(profile, test::make_cluster(4), request, Strategy::lingvo);
          }).starts_with("lingvo: partition 0 of 4 has no layers"));
  }

  TEST_CASE("row 10: efficiency and time formula") {
    const std::filesystem::path file = pp::test::repository("configs/study/vgg16-report.json");
    const auto times = std::get<StageTimeTables>(parse_study_input(read_file(file)));
    std::set<std::pair<std::string, int>> corrected;
    for (const StudyTable& table : study(times).tables) {
      CHECK(table.rows[table.best].micro_batches == 8);
      for (const StudyRow& row : table.rows) {
        if (row.printed->verdict == Printed::wrong)
          corrected.emplace(table.title.substr(0, 9), row.micro_batches);
      }
    }
    CHECK(corrected == std::set<std::pair<std::string, int>>{{"table 4.3", 2}, {"table 4.3", 4}});
  }

  TEST_CASE("row 12: PipeDream planner, flat and hierarchical") {
    const Profile vgg16 = pp::test::peer_profile("vgg16");
    PeerOptions options;
    options.levels = {{4, BytesPerSecond(1.25e9)}};
    CHECK(test::plan_of(vgg16, options)->objective.count() == doctest::Approx(0.176349165867).epsilon(1e-9));
    CHECK(replicas_text(*test::plan_of(vgg16, options)) == "3-1");
    options.levels = {{8, BytesPerSecond(4294967296)}, {2, BytesPerSecond(2147483648)}};
    CHECK(test::plan_of(vgg16, options)->objective.count() == doctest::Approx(0.078392462243).epsilon(1e-9));
    // Published costs on small chains: the slowest of max(compute, 2(m-1) w/bw)/m of the stages and 2 a/bw of
    // the cuts, over all ways to use exactly three machines.
    options = {.model = PeerModel::pipedream_paper, .levels = {{3, BytesPerSecond(1e9)}}};
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      CAPTURE(seed);
      test::Random random(seed);
      const Profile profile = test::random_profile(random, random.integer(1, 5), false);
      double least = std::numeric_limits<double>::infinity();
      Partition stages;
      test::each_split(0, static_cast<int>(profile.layers.size()), 3, stages, [&](const Partition& all) {
        double slowest = 0;
        for (const auto& [begin, end, machines] : all) {
          double compute = 0, reduced = 0;
          for (int l = begin; l < end; ++l) {
            const LayerProfile& layer = profile.layers[at(l)];
            compute += (layer.points[0].forward.median + layer.points[0].backward.median).count();
            reduced += 2.0 * (machines - 1) * static_cast<double>(layer.parameters.value) / 1e9;
          }
          slowest = std::max(slowest, std::max(compute, reduced) / machines);
          if (begin == 0) continue;
          const LayerPoint& sent = profile.layers[at(begin - 1)].points[0];
          slowest = std::max(slowest, 2 * static_cast<double>(sent.output.value) / 1e9);
        }
        least = std::min(least, slowest);
      });
      CHECK(test::plan_of(profile, options)->objective.count() == doctest::Approx(least).epsilon(1e-12));
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

  TEST_CASE("row 14: weight stashing, its versions") {
    CHECK(live_versions(program_set({"pipedream", {1, 1, 1, 1}, 1}, 20), WeightPolicy::stash) ==
          std::vector<int>{4, 3, 2, 1});
  }

  TEST_CASE("row 15: vertical sync, its versions") {
    CHECK(live_versions(program_set({"vertical-sync", {1, 1, 1, 1}, 1}, 20), WeightPolicy::vertical_sync) ==
          std::vector<int>{4, 4, 4, 4});
  }

  TEST_CASE("row 16: 1F1B-RR") {
    for (const int front : {2, 3}) {
      const ProgramSet set = program_set({"pipedream", {front, 1}, 1, WindowRule::published}, 6 * front);
      for (int replica = 0; replica < front; ++replica) {
        for (const Op& op : set.workers[at(replica)]) {
          if (has_micro_batch(op.kind)) CHECK(op.micro_batch % front == replica);
        }
      }
      // NOAM = ceil(R / r_0): ceil(3/2) and ceil(4/3).
      CHECK(windows(WindowRule::published, std::vector<int>{front, 1}).front() == 2);
      CHECK(peaks(set).front() == 2);
    }
    CHECK(lists(program_set({"pipedream", {2, 1}, 1, WindowRule::published}, 6)) ==
          golden_lists("PipeDream 2-1 J6"));
  }

  TEST_CASE("row 17: 2BW, its versions") {
    for (const int m : {4, 5, 8}) {
      CHECK(live_versions(program_set({"2bw", {1, 1, 1, 1}, m}, 6 * m), WeightPolicy::two_buffered) ==
            std::vector<int>{2, 2, 2, 2});
    }
    CHECK(error_of([] {
            make_schedule({"2bw", {1, 1, 1, 1}, 3});
          }) == "schedule 2bw: micro_batches = 3 per update is less than 4 stages");
  }

  TEST_CASE("row 18: PipeDream-Flush") {
    for (int k = 1; k <= 6; ++k) {
      for (int m = 1; m <= 8; ++m) {
        std::vector<double> expected;
        for (int s = 0; s < k; ++s) expected.push_back(std::min(k - s, m));
        CHECK(peaks(straight("1f1b", k, m)) == expected);
      }
    }
  }

  TEST_CASE("row 19: DAPPLE PA and PB") {
    CHECK(lists(straight("dapple-pa", 4, 6)) == golden_lists("1F1B K4 M6"));
    CHECK(lists(straight("dapple-pb", 4, 8)) == golden_lists("DAPPLE PB K4 M8"));
    // PA pays the latency in every round, (M+K-1)T + (2(K-1)M/K + 2(K-2))c, PB once, (M+K-1)T + 2(K-1)c.
    for (const double c : {0.25, 0.5, 1.0, 1.5}) {
      for (const auto& [name, paid] : {std::pair{"dapple-pa", 28.0}, {"dapple-pb", 6.0}}) {
        SimulationInput input = test::equal_stages(straight(name, 4, 16));
        test::link_all(input, {BytesPerSecond(0), Seconds(c)});
        CHECK(test::makespan(input) == test::approx(57 + paid * c));
      }
    }
  }

  TEST_CASE("row 20: DAPPLE planner") {
    // Three stages of 4, 2 and 6 ms on three servers of one device, two micro-batches, 1 and 2 MB at the cuts
    // of 1e9 bytes/s. The global batch: 8, 4, 12 ms and 2, 4 MB; block = 12/2 = 6. L = 6 (2-1) + 12 + (2 +
    // 4)/2 = 21 ms; single devices reduce nothing.
    const Profile three = test::make_profile(
        {{{1, 3, 1'000'000, 1'000'000}, {1, 1, 1'000'000, 2'000'000}, {2, 4, 1'000'000}}, {}, {1}});
    const PeerInput input = peer_input(three);
    const Chain chain = chain_of(input, input.orders.front());
    CHECK(DappleCosts{chain, {3, 1}, 2}.latency({{1, 2}, {{0}, {1}, {2}}}) == test::approx(0.021));

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

  TEST_CASE("row 21: Harmony, what is swapped in") {
    // Four packs of one stage on two workers. Forwards 0, 1, 2 on workers 0, 1, 0; the fused last pack and
    // the backwards 2, 1, 0 on workers 1, 0, 1, 0: the weights of stage 2 are still there, those of 3 come
    // once.
    ScheduleRequest request{"harmony-pp", {1, 1}, 4};
    request.chunks_per_worker = 2;
    const ProgramSet set = program_set(request);
    std::vector<int> loads;
    for (int s = 0; s < 4; ++s) {
      loads.push_back(0);
      for (const Program& program : set.workers) loads.back() += count(program, OpKind::load, s);
    }
    CHECK(loads == std::vector<int>{2, 2, 1, 1});
    // A pack of weights on a worker at a time, where the plain run keeps four.
    SimulationInput swapped = test::equal_stages(set),
                    plain = test::equal_stages(straight("data-parallel", 1, 4));
    for (StageCosts& stage : swapped.stages) stage.weights = Bytes(10);
    plain.stages.front().weights = Bytes(40);
    for (const MemoryPeak& memory : simulate(swapped).memory) CHECK(memory.weights == Bytes(10));
    CHECK(simulate(plain).memory.front().weights == Bytes(40));
  }

  TEST_CASE("row 22: SpecTrain, how far it looks ahead") {
    for (int n = 1; n <= 8; ++n) {
      for (int k = 0; k < n; ++k) CHECK(look_ahead(k, n) == LookAhead{k / 2 + n - k - 1, k / 2});
    }
  }

  TEST_CASE("row 24: PARTIME, its clock") {
    const ProgramSet set = program_set({"partime", {1, 1, 1, 1}, 1}, 50);
    // The output of frame i at step i+N-1; a gradient meets the frame of 2(N-1-s) steps later.
    for (int s = 0; s < 4; ++s) {
      const Program& program = set.workers[at(s)];
      const auto first = [&](OpKind kind) { return std::ranges::find(program, kind, &Op::kind)->micro_batch; };
      CHECK(first(OpKind::forward) == s);
      CHECK(first(OpKind::backward) == 6 - s);
      CHECK(count(program, OpKind::update, s) == count(program, OpKind::backward, s));
    }
    CHECK(to_text(program_set({"partime", {1}, 1}, 2).workers[0]) == "F0.0 B0.0 U0 F0.1 B0.1 U0");
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

  TEST_CASE("row 33: ZB-H1, ZB-H2, ZB-V") {
    CHECK(lists(straight("zb-h1", 4, 6)) == golden_lists("ZB-H1 K4 M6"));
    CHECK(lists(straight("zb-h2", 4, 8)) == golden_lists("ZB-H2 K4 M8"));
    CHECK(lists(straight("zb-v", 2, 4)) == golden_lists("ZB-V K2 M4"));
    for (const auto& [name, chunks, period] : {std::tuple{"zb-h1", 1, 27}, {"zb-h2", 1, 24}, {"zb-v", 2, 24}})
      CHECK(chained_period(test::equal_stages(straight(name, 4, 8), chunks)).count() == test::approx(period));
    for (const json& entry : pp::test::golden("bubble_rate")) {
      const json& inputs = entry.at("inputs");
      const ShareTimes times{inputs.at("t_f_ms"), inputs.at("t_i_ms"), inputs.at("t_w_ms")};
      for (const char* name : {"zb-h1", "zb-h2"}) {
        const ScheduleRequest request{name, std::vector<int>(inputs.at("workers").get<std::size_t>(), 1),
                                      inputs.at("micro_batches")};
        const double lost = *bubble_time(request, times, inputs.at("latency_ms"));
        const double rate = lost / (lost + request.micro_batches * times.total());
        CHECK(std::abs(rate - entry.at("expected").at(name).get<double>()) <= 5.1e-5);
      }
    }
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
          "plan: deadlock after 2 of 10 operations\n"
          "  worker 0: next B0.0 needs B1.0 (worker 1)\n"
          "  worker 1: next F1.1 needs F0.1 (worker 0)");
  }
}

}  // namespace
}  // namespace pp::plan::systems_test
