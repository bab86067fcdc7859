// More mini-batches to a step than an epoch has: a step is the epoch.
#include <limits>
#include <string>

#include "libprofile/core/error.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace accumulate_test {

using namespace pp;

namespace {

// Three mini-batches of 8 samples and one of 6 in an epoch.
run::RunOptions options_of(int accumulate) {
  run::RunOptions options = pp::test::synthetic_options(3, 30);
  options.evaluate = false;
  options.accumulate = accumulate;
  return options;
}

}  // namespace

TEST_SUITE("librun/accumulate") {
  TEST_CASE("a step has at most the epoch's mini-batches, and its throughput is that of their samples") {
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    const test::Run four = test::run_plan(plan, options_of(4));
    for (const int more : {5, 1'000'000, std::numeric_limits<int>::max()}) {
      CAPTURE(more);
      const test::Run found = test::run_plan(plan, options_of(more));
      CHECK(test::first_difference(four.tensors, found.tensors) == "");
      CHECK(found.report.step_losses == four.report.step_losses);
      CHECK(found.report.samples_per_s * found.report.step.count() == doctest::Approx(30));
    }
  }

  TEST_CASE(
      "a checkpoint of such a step says what it has, so that another number beyond the epoch resumes it") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}, .mini_batch = 8});
    run::RunOptions options = options_of(1'000'000'000);  // times 8 more than an int
    const test::Run whole = test::run_plan(plan, options);
    options.checkpoint = folder.path() / "ck";
    options.steps = 1;
    test::SilentObserver observer;
    test::run_checked(plan, options, observer);
    CHECK(run::find_checkpoint(options.checkpoint).manifest.identity.mini_batch == 4 * 8);
    CHECK(whole.report.settings.at("accumulate") == run::Setting(std::int64_t{4}));
    options.resume = options.checkpoint;
    options.accumulate = 5;
    options.steps = 3;
    const test::Run resumed = test::run_plan(plan, options);
    CHECK(test::first_difference(whole.tensors, resumed.tensors) == "");
  }
}

}  // namespace accumulate_test
