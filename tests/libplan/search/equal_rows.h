// Rows of equal layers that the stages do not divide, and the three plain ways to place the remainder.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "libplan/search/planner.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/profiles.h"

namespace pp::plan::test {

/// Layers of 10 ms forward and 20 ms backward under a schedule with `chunks` stages on each of its workers.
struct EqualRow {
  int layers = 8;
  int workers = 2;
  int chunks = 1;
  int micro_batches = 4;
  std::string schedule = "1f1b";
  std::int64_t output = 0;  ///< bytes, over links of 1 MB/ms

  int stages() const { return workers * chunks; }
};

inline EqualRow random_row(std::mt19937& random) {
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  EqualRow row;
  row.chunks = draw(1, 3);
  row.workers = draw(2, 20);
  row.layers = draw(std::max(8, row.stages()), 100);
  const std::vector<std::string> of_chunks[] = {
      {"1f1b", "gpipe", "zb-h1"}, {"interleaved", "zb-v"}, {"interleaved"}};
  const auto& schedules = of_chunks[row.chunks - 1];
  row.schedule = schedules[at(draw(0, static_cast<int>(schedules.size()) - 1))];
  row.micro_batches = row.schedule == "interleaved" ? row.workers * draw(1, 2) : draw(2, 32);
  if (row.schedule == "zb-v") row.micro_batches = std::max(row.micro_batches, row.workers);
  row.output = draw(0, 2) == 0 ? 1'000'000 : 1000;
  return row;
}

inline Plan plan_of(const EqualRow& row, const std::vector<int>& cuts = {}) {
  const std::vector<LayerRow> layers(at(row.layers), {10, 20, 4096, row.output, 4096, 0, 0});
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(row.micro_batches);
  request.schedule = row.schedule;
  request.chunks_per_worker = row.chunks > 1 ? row.chunks : 0;
  request.cuts = cuts;
  if (cuts.empty()) request.stages = row.workers;
  return std::get<Plan>(find_plan(make_profile({layers, {}, {1}}), make_cluster(row.workers), request));
}

/// With the remainder on the first stages, on the last ones, and spread.
inline std::vector<std::vector<int>> plain_cuts(const EqualRow& row) {
  const int stages = row.stages(), least = row.layers / stages, rest = row.layers % stages;
  std::vector<std::vector<int>> cuts(3);
  for (int s = 1; s < stages; ++s) {
    cuts[0].push_back(s * least + std::min(s, rest));
    cuts[1].push_back(s * least + std::max(0, s - (stages - rest)));
    cuts[2].push_back(s * row.layers / stages);
  }
  return cuts;
}

/// Seconds of the best of them.
inline double plain_step(const EqualRow& row) {
  double best = std::numeric_limits<double>::infinity();
  for (const std::vector<int>& cuts : plain_cuts(row))
    best = std::min(best, plan_of(row, cuts).predicted.step.count());
  return best;
}

}  // namespace pp::plan::test
