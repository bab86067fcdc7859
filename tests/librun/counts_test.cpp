// What a step's operations ask for beside tensors, in steady state.
#include "libprofile/model/families/families.h"
#include "tests/librun/models.h"
#include "tests/librun/operation_counts.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace counts_test {

using namespace pp;

namespace {

constexpr int kSteps = 24, kFrom = 14;

pp::test::RunCounts counts_of(PlanSpec spec) {
  run::RunOptions options = pp::test::synthetic_options(kSteps, spec.mini_batch * kSteps);
  options.learning_rate = 1e-4;
  return pp::test::count_operations(make_plan(spec), options, kFrom);
}

const PlanSpec kPlans[] = {
    {.model = pp::test::mlp(4), .cuts = {2, 4, 6}},
    {.model = pp::test::mlp(4), .cuts = {2, 4, 6}, .schedule = "zb-h1"},
    {.model = pp::test::mlp(4), .cuts = {1, 2, 3, 4, 5, 6, 7}, .schedule = "interleaved"},
    {.model = pp::test::residual_net(), .cuts = {3, 6, 9}, .schedule = "gpipe"},
    {.model = pp::test::skip_mlp(), .cuts = {2, 3, 4}},
    // Tensors of 16 x 2048 floats, 128 KiB, and weights of 16 MiB: blocks that are kept between uses.
    {.model = model::build_family("mlp:width=2048,layers=4"), .cuts = {2, 4, 6}, .mini_batch = 64},
};

}  // namespace

TEST_SUITE("librun/counts") {
  TEST_CASE("operations allocate tensors, nodes of graphs and handles of what they receive, nothing else") {
    for (const PlanSpec& spec : kPlans) {
      CAPTURE(spec.schedule);
      const pp::test::OperationCounts all = counts_of(spec).all();
      REQUIRE(all.operations > 0);
      CHECK(all.allocations == 0);
    }
  }

  TEST_CASE("no lock is taken by more than two workers, but for one when a step is complete") {
    for (const PlanSpec& spec : kPlans) {
      CAPTURE(spec.schedule);
      const pp::test::RunCounts counts = counts_of(spec);
      CHECK(counts.all().locks > 0);
      CHECK(counts.locks_of_many <= kSteps - kFrom);
    }
  }
}

}  // namespace counts_test
