// Decoders of every family train in two and three stages to the bits of a single device.
#include <algorithm>
#include <string>
#include <vector>

#include "libprofile/model/families/families.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/small_families.h"
#include "tests/support/torch_test.h"

namespace decoders_test {

using namespace pp;
using plan::Recompute;

namespace {

run::RunOptions short_run() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 24;
  options.steps = 2;
  options.learning_rate = 0.05;
  options.evaluate = false;
  return options;
}

struct Cut {
  std::vector<int> thirds;  ///< boundaries, in thirds of the layers
  const char* schedule;
  std::vector<Recompute> recompute = {};
};

void check_cuts(const ModelGraph& model) {
  const int layers = static_cast<int>(model.layers.size());
  PlanSpec spec{.model = model};
  const test::Trained expected = test::train_alone(make_plan(spec), short_run());
  for (const Cut& cut :
       {Cut{{1}, "1f1b"}, Cut{{1, 2}, "gpipe"}, Cut{{1, 2}, "zb-h1"}, Cut{{2}, "1f1b", {Recompute::always}}}) {
    spec.cuts.clear();
    for (const int third : cut.thirds) spec.cuts.push_back(third * layers / 3);
    spec.schedule = cut.schedule;
    spec.recompute = cut.recompute;
    const std::string where =
        std::string(cut.schedule) + ", " + std::to_string(spec.cuts.size() + 1) + " stages";
    CAPTURE(where);
    const test::Run found = test::run_plan(make_plan(spec), short_run());
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == expected.losses);
  }
}

}  // namespace

TEST_SUITE("librun/decoders") {
  TEST_CASE("every family: two and three stages, split backwards and recomputation have one device's bits") {
    int found = 0;
    for (const std::string_view family : small::kDecoders) {
      const ModelGraph model = model::build_family(family);
      const bool grouped = std::ranges::any_of(
          model.layers, [](const Layer& layer) { return layer.op == "grouped_query_attention"; });
      if (!grouped) continue;
      CAPTURE(family);
      check_cuts(model);
      ++found;
    }
    CHECK(found == 9);
  }
}

}  // namespace decoders_test
