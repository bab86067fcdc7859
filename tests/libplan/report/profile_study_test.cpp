// The tables of a study from a profile, by hand.
#include "libplan/report/profile_study.h"

#include <cmath>

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/search/profiles.h"

#include "tests/support/doctest.h"

namespace pp::plan::profile_study_test {
namespace {

using test::error_of;
using test::make_profile;

/// Layers a, b, c at 1, 2, 4, 8 samples: forwards of 1 + 2n, 1 + n/2 and 1 + n/2 ms for n samples, so that a
/// millisecond of each is lost on every micro-batch. Outputs of 1 MB per sample.
Profile with_fixed_times(const std::vector<std::pair<int, int>>& edges = {}) {
  Profile profile = make_profile(
      {{{2, 4, 0, 1'000'000}, {0.5, 1, 0, 1'000'000}, {0.5, 1, 0, 1'000'000}}, edges, {1, 2, 4, 8}});
  for (LayerProfile& layer : profile.layers) {
    for (LayerPoint& point : layer.points) point.forward.median += Seconds(1e-3);
  }
  return profile;
}

PlanRequest cut_at(std::vector<int> cuts) {
  PlanRequest request;
  request.mini_batch = 8;
  request.cuts = std::move(cuts);
  return request;
}

/// 1 MB per ms, 0.5 ms for each message.
Cluster linked(int devices) {
  return flat_cluster(devices, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(0.5e-3), Bytes(0));
}

/// Of every row, in ms.
std::vector<double> times_ms(const StudyTable& table) {
  std::vector<double> times;
  for (const StudyRow& row : table.rows) times.push_back(std::round(1e9 * row.time.count()) / 1e6);
  return times;
}

std::vector<double> stages_ms(const StageTimeRow& row) {
  std::vector<double> times;
  for (const Seconds time : row.stages) times.push_back(std::round(1e9 * time.count()) / 1e6);
  return times;
}

std::string refusal(const PlanRequest& request, const std::vector<int>& micro_batches = {},
                    const std::optional<Cluster>& cluster = {}) {
  return error_of([&] { profile_stage_times(with_fixed_times(), cluster, request, micro_batches); });
}

TEST_SUITE("libplan/report/profile_study") {
  TEST_CASE("where every micro-batch loses time, time(m) falls and then rises") {
    // Stages a | b c. M = 1, 2, 4, 8 micro-batches of 8, 4, 2, 1 samples: S0 = 17, 9, 5, 3 and S1 = 10, 6,
    // 4, 3. time = 27, 15 + 9, 9 + 3*5, 6 + 7*3; of the equal ones two micro-batches are the fewer.
    const PipelineStudy table = study(profile_stage_times(with_fixed_times(), {}, cut_at({1}), {}));
    CHECK(table.name == "example, stages 1|2");
    CHECK(table.source == "forwards of a mini-batch of 8 samples");
    REQUIRE(table.tables.size() == 1);
    CHECK(times_ms(table.tables[0]) == std::vector<double>{27, 24, 24, 27});
    CHECK(table.tables[0].rows[table.tables[0].best].micro_batches == 2);
    CHECK(table.tables[0].course == Course::falls_then_rises);
    CHECK(table.tables[0].rows[0].efficiency == doctest::Approx(27.0 / 34));
    CHECK_FALSE(table.tables[0].rows[0].printed.has_value());
  }

  TEST_CASE("with a cluster the second table adds the transfer into every stage") {
    // S1 = 10 + 8.5, 6 + 4.5, 4 + 2.5, 3 + 1.5: time = 35.5, 19.5 + 10.5, 11.5 + 3*6.5, 7.5 + 7*4.5.
    const StageTimeTables times = profile_stage_times(with_fixed_times(), linked(2), cut_at({1}), {});
    REQUIRE(times.tables.size() == 2);
    const PipelineStudy tables = study(times);
    CHECK(times_ms(tables.tables[0]) == std::vector<double>{27, 24, 24, 27});
    CHECK(times_ms(tables.tables[1]) == std::vector<double>{35.5, 30, 31, 39});
    CHECK(tables.tables[1].course == Course::falls_then_rises);
  }

  TEST_CASE("a stage waits for every tensor that it reads, from wherever it comes") {
    // c reads a and b: 8 MB and a message each, from two stages or from one.
    const Profile profile = with_fixed_times({{0, 1}, {1, 2}, {0, 2}});
    const StageTimeTables three = profile_stage_times(profile, linked(3), cut_at({1, 2}), {1});
    CHECK(stages_ms(three.tables[1].rows.front()) == std::vector<double>{17, 5 + 8.5, 5 + 8.5 + 8.5});
    const StageTimeTables two = profile_stage_times(profile, linked(2), cut_at({2}), {1});
    CHECK(stages_ms(two.tables[1].rows.front()) == std::vector<double>{17 + 5, 5 + 8.5 + 8.5});
  }

  TEST_CASE("stage s runs on device s; the executor's fixed time counts once per stage") {
    Profile profile = with_fixed_times();
    profile.operation_overhead = OperationOverhead{};
    profile.operation_overhead->forward.median = Seconds(0.25e-3);
    Cluster cluster = linked(2);
    cluster.devices[1].speed = 2;
    const StageTimeTables times = profile_stage_times(profile, cluster, cut_at({1}), {4});
    CHECK(stages_ms(times.tables[0].rows.front()) == std::vector<double>{5.25, 4.25 / 2});
  }

  TEST_CASE("--stages alone balances the forwards at the middle count") {
    // Of n samples 1 + 2n, 9 and 7 ms: 12 | 7 for one, 14 | 7 for two, 9 | 16 for four, 17 | 16 for eight.
    Profile profile = with_fixed_times();
    for (LayerPoint& point : profile.layers[1].points) point.forward.median = Seconds(9e-3);
    for (LayerPoint& point : profile.layers[2].points) point.forward.median = Seconds(7e-3);
    PlanRequest request = cut_at({});
    request.stages = 2;
    const auto name = [&](std::vector<int> counts) {
      return profile_stage_times(profile, {}, request, std::move(counts)).name;
    };
    CHECK(name({8}) == "example, stages 2|1");
    CHECK(name({1}) == "example, stages 1|2");
    CHECK(name({1, 8}) == "example, stages 2|1");
    CHECK(name({1, 4, 8}) == "example, stages 2|1");
    CHECK(name({1, 2, 8}) == "example, stages 1|2");
    // The loss is part of the last layer: of four samples 18 | 7 + 7.
    profile.loss = profile.layers[2];
    const StageTimeTables times = profile_stage_times(profile, {}, request, {2});
    CHECK(times.name == "example, stages 2|1");
    CHECK(stages_ms(times.tables[0].rows.front()) == std::vector<double>{18, 14});
  }

  TEST_CASE("the counts asked for are sorted, each once") {
    const StageTimeTables times = profile_stage_times(with_fixed_times(), {}, cut_at({1}), {4, 1, 4});
    REQUIRE(times.tables[0].rows.size() == 2);
    CHECK(times.tables[0].rows[0].micro_batches == 1);
    CHECK(times.tables[0].rows[1].micro_batches == 4);
  }

  TEST_CASE("what cannot be studied is refused") {
    CHECK(refusal(cut_at({})) == "a profile has no stages: say how to cut it; add --stages K or --cuts K,K");
    CHECK(refusal(cut_at({3})) == "cuts: boundary 3 is outside 1..2");
    CHECK(refusal(cut_at({1}), {3}) ==
          "micro_batches = 3 does not divide the mini-batch of 8 samples, and the formulas are of equal "
          "micro-batches; use 1, or another mini-batch");
    CHECK(refusal(cut_at({1}), {16}) == "micro_batches = 16 exceeds the mini-batch of 8 samples");
    CHECK(refusal(cut_at({1}), {}, linked(1)) == "stages = 2 exceeds the number of devices, 1");
    PlanRequest none = cut_at({1});
    none.mini_batch = 0;
    CHECK(refusal(none) ==
          "mini_batch = 0: the samples per optimizer update are not given; add --mini-batch N");
    PlanRequest many = cut_at({});
    many.stages = 4;
    CHECK(refusal(many) == "stages = 4 exceeds the number of layers, 3");
    const Profile empty = make_profile({std::vector<test::LayerRow>(2), {}, {8}});
    PlanRequest forced = cut_at({1});
    forced.force_units = true;
    CHECK(error_of([&] { profile_stage_times(empty, {}, forced, {}); }) ==
          "no stage takes any time with 1 micro-batch; profile the model on a device");
  }
}

}  // namespace
}  // namespace pp::plan::profile_study_test
