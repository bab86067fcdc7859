#include "libprofile/model/segment_plan.h"

#include "libprofile/core/error.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/models.h"
#include "tests/support/torch_test.h"

namespace segment_plan_test {

using namespace pp;
using namespace pp::model::detail;
using namespace pp::model::test;
using Kind = TensorSource::Kind;

namespace {

using Sources = std::vector<TensorSource>;

/// a(x) -> b -> c(b, a, y) -> loss(c, t); d(a) is an output that the loss does not see.
ResolvedModel skip_model() {
  return GraphBuilder()
      .input("x", {2})
      .input("y", {2})
      .target("t", {2}, DType::float32)
      .layer("a", "linear", {"x"}, {{"out_features", whole(2)}})
      .layer("b", "tanh", {"a"})
      .layer("c", "add", {"b", "a", "y"})
      .layer("d", "relu", {"a"})
      .output("c")
      .output("d")
      .loss("mse", "c", "t")
      .build();
}

}  // namespace

TEST_SUITE("libprofile/model/segment_plan") {
  TEST_CASE("inputs are layers ascending, then model inputs, then targets, each once") {
    const ResolvedModel model = skip_model();
    const SegmentPlan last = plan_segment(model, {2, 3}, true);
    CHECK((last.inputs ==
           Sources{{Kind::layer, 0, 0}, {Kind::layer, 1, 0}, {Kind::input, 1, 0}, {Kind::target, 0, 0}}));
    CHECK((last.input_gradient == std::vector<bool>{true, true, false, false}));
    CHECK((plan_segment(model, {0, 1}, false).inputs == Sources{{Kind::input, 0, 0}}));
  }

  TEST_CASE("outputs are what others and the model's outputs read") {
    const ResolvedModel model = skip_model();
    CHECK((plan_segment(model, {0, 1}, false).outputs == Sources{{Kind::layer, 0, 0}, {Kind::layer, 1, 0}}));
    CHECK(
        (plan_segment(model, {0, 1, 2, 3}, true).outputs == Sources{{Kind::layer, 2, 0}, {Kind::layer, 3, 0}}));
    CHECK((plan_segment(model, {1}, false).outputs == Sources{{Kind::layer, 1, 0}}));
  }

  TEST_CASE("a tensor that only a dead end reads wants no gradient") {
    const SegmentPlan dead = plan_segment(skip_model(), {3}, false);
    CHECK((dead.input_gradient == std::vector<bool>{false}));
    CHECK_FALSE(dead.order[0].backward);
  }

  TEST_CASE("without a loss the model's outputs are what counts") {
    ModelGraph graph = skip_model().graph;
    graph.loss.reset();
    graph.targets.clear();
    const ResolvedModel model = resolve(graph);
    CHECK((plan_segment(model, {3}, false).input_gradient == std::vector<bool>{true}));
  }

  TEST_CASE("nothing before the first parameter wants a gradient") {
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {2})
                                    .layer("squash", "tanh", {"x"})
                                    .layer("fc", "linear", {"squash"}, {{"out_features", whole(2)}})
                                    .output("fc")
                                    .build();
    CHECK_FALSE(plan_segment(model, {0}, false).order[0].backward);
    const SegmentPlan second = plan_segment(model, {1}, false);
    CHECK((second.input_gradient == std::vector<bool>{false}));
    CHECK(second.order[0].backward);
  }

  TEST_CASE("the loss can stand behind a segment that only receives its prediction") {
    const SegmentPlan plan = plan_segment(skip_model(), {3}, true);
    CHECK((plan.inputs == Sources{{Kind::layer, 0, 0}, {Kind::layer, 2, 0}, {Kind::target, 0, 0}}));
    CHECK((plan.input_gradient == std::vector<bool>{false, true, false}));
    CHECK((plan.order.back().position == 1));
  }

  TEST_CASE("layers that are missing, unordered or unknown are refused") {
    const ResolvedModel model = skip_model();
    CHECK_THROWS_WITH_AS(plan_segment(model, {}, false), "segment: no layers; give it at least one", Error);
    CHECK_THROWS_WITH_AS(plan_segment(model, {1, 0}, false), "segment: layer 0 is not in ascending order",
                         Error);
    CHECK_THROWS_WITH_AS(plan_segment(model, {4}, false), "segment: layer 4 is not one of the model's 4",
                         Error);
    ModelGraph graph = model.graph;
    graph.loss.reset();
    graph.targets.clear();
    const ResolvedModel without = resolve(graph);
    CHECK_THROWS_WITH_AS(plan_segment(without, {0}, true), "segment: the model has no loss", Error);
  }
}

}  // namespace segment_plan_test
