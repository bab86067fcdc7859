// Plans for trainings on several ranks: every schedule that pp-run executes, on 2, 3 and 4 ranks with 1 or 2
// workers each.
#pragma once

#include <string>
#include <vector>

#include "tests/librun/models.h"
#include "tests/support/plans.h"

namespace pp::test {

struct RankCase {
  std::string name;
  int ranks = 2;
  PlanSpec spec;
};

/// Stages of about equally many layers.
inline std::vector<int> equal_cuts(const ModelGraph& model, int stages) {
  std::vector<int> cuts;
  for (int s = 1; s < stages; ++s) cuts.push_back(s * static_cast<int>(model.layers.size()) / stages);
  return cuts;
}

/// A plan of `workers` workers; none where the schedule has no such.
inline std::optional<PlanSpec> spec_for(const std::string& schedule, int workers) {
  PlanSpec spec{.model = pp::test::mlp(8), .schedule = schedule};
  int stages = workers;
  spec.micro_batches = 2 * workers;
  if (schedule == "naive" || schedule == "pipedream" || schedule == "vertical-sync" || schedule == "spectrain")
    spec.micro_batches = 1;
  if (schedule == "data-parallel" || schedule == "parameter-server") {
    stages = 1;
    spec.replicas = {workers};
  }
  if (schedule == "hybrid") {
    if (workers % 2 != 0) return std::nullopt;
    stages = workers / 2;
    spec.replicas.assign(static_cast<std::size_t>(stages), 2);
  }
  if (schedule == "1f1b" && workers > 2) {  // the last stage twice
    stages = workers - 1;
    spec.replicas.assign(static_cast<std::size_t>(stages), 1);
    spec.replicas.back() = 2;
  }
  if (schedule == "chimera" && workers % 2 != 0) return std::nullopt;
  for (const char* const chunks : {"interleaved", "looped-bfs", "zb-v", "dualpipe-v"}) {
    if (schedule == chunks) stages = 2 * workers;
  }
  spec.cuts = equal_cuts(spec.model, stages);
  spec.mini_batch = spec.micro_batches == 1 ? 8 : 2 * spec.micro_batches;
  return spec;
}

inline std::vector<RankCase> rank_cases() {
  std::vector<RankCase> cases;
  for (const char* const schedule :
       {"naive",      "data-parallel", "gpipe",       "gpipe-reverse",   "1f1b",          "hybrid",
        "dapple-pa",  "dapple-pb",     "interleaved", "looped-bfs",      "zb-h1",         "zb-h2",
        "zb-v",       "dualpipe-v",    "chimera",     "pipedream",       "vertical-sync", "2bw",
        "macrobatch", "spectrain",     "xpipe",       "parameter-server"}) {
    for (const int ranks : {2, 3, 4}) {
      for (const int each : {1, 2}) {
        const std::string name =
            std::string(schedule) + " on " + std::to_string(ranks) + " ranks of " + std::to_string(each);
        const auto spec = spec_for(schedule, ranks * each);
        if (!spec) continue;
        cases.push_back({name, ranks, *spec});
        if (spec->replicas.empty()) continue;
        cases.push_back({name + ", all-reduce beside the backward", ranks, *spec});
        cases.back().spec.all_reduce_overlap = 0.5;
      }
    }
  }
  return cases;
}

}  // namespace pp::test
