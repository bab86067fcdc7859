// Whole pipelines side by side under the schedules that place their stages: trained as as many replicas of each
// stage train. What else they promise: promises_test.cpp.
#include "libprofile/model/families/families.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace side_by_side_test {

using namespace pp;

namespace {

run::RunOptions short_run() {
  run::RunOptions options = pp::test::synthetic_options(3, 48);
  options.momentum = 0.9;
  options.evaluate = false;
  return options;
}

struct Kind {
  const char* schedule;
  int places;
  int chunks;  ///< stages per worker
};

const std::vector<Kind> kKinds{{"interleaved", 2, 2}, {"interleaved", 1, 3}, {"looped-bfs", 2, 2},
                               {"zb-h1", 2, 1},       {"zb-h1", 3, 1},       {"zb-h2", 2, 1},
                               {"zb-v", 2, 2},        {"dualpipe-v", 2, 2}};

std::vector<int> first_cuts(int stages) {
  std::vector<int> cuts;
  for (int s = 1; s < stages; ++s) cuts.push_back(s);
  return cuts;
}

PlanSpec spec_of(const Kind& kind, int pipelines, int micro_batches, const ModelGraph& model) {
  return {.model = model,
          .cuts = first_cuts(kind.places * kind.chunks),
          .replicas = std::vector<int>(static_cast<std::size_t>(kind.places), pipelines),
          .schedule = kind.schedule,
          .mini_batch = 12,
          .micro_batches = micro_batches,
          .chunks = kind.chunks};
}

/// 1F1B on as many replicas of the same stages; of a schedule whose backwards run from the last micro-batch to
/// the first, GPipe in that order.
PlanSpec plain(PlanSpec spec, int pipelines) {
  spec.replicas.assign(spec.cuts.size() + 1, pipelines);
  spec.schedule = spec.schedule == "looped-bfs" ? "gpipe-reverse" : "1f1b";
  spec.chunks = 0;
  return spec;
}

}  // namespace

TEST_SUITE("librun/side_by_side") {
  TEST_CASE("pipelines side by side have the bits of as many replicas of each stage") {
    const ModelGraph model = model::build_family("mlp:inputs=12,width=16,layers=4,classes=4,dropout=0.3");
    int compared = 0;
    for (const Kind& kind : kKinds) {
      for (const int pipelines : {2, 3}) {
        for (const int share : {2, 4}) {
          const std::string name(kind.schedule);
          CAPTURE(name);
          CAPTURE(kind.places);
          CAPTURE(pipelines);
          CAPTURE(share);
          const PlanSpec spec = spec_of(kind, pipelines, pipelines * share, model);
          plan::Plan plan;
          try {
            plan = make_plan(spec);
          } catch (const Error&) {
            continue;  // micro-batches that the schedule does not take
          }
          plan::check_plan(plan);
          const pp::test::Run found = pp::test::run_plan(plan, short_run());
          const pp::test::Run expected = pp::test::run_plan(make_plan(plain(spec, pipelines)), short_run());
          CHECK(pp::test::first_difference(expected.tensors, found.tensors) == "");
          CHECK(found.report.step_losses == expected.report.step_losses);
          ++compared;
        }
      }
    }
    CHECK(compared > 20);
  }
}

}  // namespace side_by_side_test
