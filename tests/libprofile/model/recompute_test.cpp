// Layers that run again inside backward: the same bits, and only their inputs held between the two.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>

#include <numeric>

#include "libprofile/core/error.h"
#include "libprofile/model/segment.h"
#include "tests/libprofile/model/counting_allocator.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/harness.h"
#include "tests/libprofile/model/models.h"
#include "tests/support/torch_test.h"

namespace recompute_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

/// Every layer alone, then all, every second and every third.
std::vector<std::vector<int>> some_sets(int layers) {
  std::vector<std::vector<int>> sets;
  for (int layer = 0; layer < layers; ++layer) sets.push_back({layer});
  for (int step = 1; step <= 3; ++step) {
    std::vector<int>& set = sets.emplace_back();
    for (int layer = 0; layer < layers; layer += step) set.push_back(layer);
  }
  return sets;
}

/// [100] -> linear -> relu -> dropout -> linear [10]; of two float32 samples the hidden tensors are 800 bytes
/// each and the mask of the dropout 200.
struct DropoutNet {
  CountingAllocator& allocator = CountingAllocator::install();
  ResolvedModel model = GraphBuilder()
                            .input("x", {50})
                            .layer("in", "linear", {"x"}, {{"out_features", whole(100)}})
                            .layer("relu", "relu", {"in"})
                            .layer("drop", "dropout", {"relu"}, {{"p", 0.5}})
                            .layer("head", "linear", {"drop"}, {{"out_features", whole(10)}})
                            .output("head")
                            .build();
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  std::int64_t before = 0;

  Pass forward(const Segment& segment, const std::shared_ptr<const Weights>& weights) {
    before = allocator.live();
    PassContext context;
    context.generator = &generator;
    Pass pass = segment.forward(weights, std::vector{at::ones({2, 50})}, context);
    pass.outputs.clear();
    return pass;
  }
  std::int64_t held() const { return allocator.live() - before; }
};

}  // namespace

TEST_SUITE("libprofile/model/recompute") {
  TEST_CASE("any recomputed layers, whole or split backward, one or two stages: the same bits") {
    // Dropout, attention with dropout, batch norm, shared weights, tensors with several consumers.
    for (const ResolvedModel& model : {residual_model(), language_model(), branching_model()}) {
      const Job job{.model = &model};
      const auto one_stage = cut_at(model, {});
      const auto two_stages = cut_at(model, {model.layer_count() / 2});
      for (const Halves halves : {Halves::together, Halves::apart}) {
        const Outcome expected = run_stages(job, one_stage, halves);
        for (const std::vector<int>& set : some_sets(model.layer_count())) {
          CHECK(difference(expected, run_stages(job, one_stage, halves, set)) == "");
        }
        const std::vector<int> all =
            some_sets(model.layer_count())[static_cast<std::size_t>(model.layer_count())];
        CHECK(difference(run_stages(job, two_stages, halves), run_stages(job, two_stages, halves, all)) == "");
      }
    }
  }

  TEST_CASE("between forward and backward a recomputed layer holds its inputs, after backward nothing") {
    DropoutNet net;
    const Segment plain(net.model, {0, 1, 2, 3}, false);
    const Segment again(net.model, {0, 1, 2, 3}, false, {2});
    const auto weights = plain.initial_weights(1, DType::float32);
    {
      // in: x of 400 bytes; relu: its result; drop: its mask; head: the result of drop.
      const Pass pass = net.forward(plain, weights);
      CHECK(net.held() == 400 + 800 + 200 + 800);
    }
    Gradients gradients = again.empty_gradients();
    Pass pass = net.forward(again, weights);
    CHECK(net.held() == 400 + 800 + 800);  // drop's input is relu's result, which relu holds anyway
    std::vector<Tensors> arrived{{at::ones({2, 10})}};
    again.backward(pass, arrived, 1.0, gradients);
    // What is left are the gradients of 50*100 + 100 + 100*10 + 10 parameters.
    CHECK(net.held() == 4 * 6110);
  }

  TEST_CASE("recomputing a layer whose result the next one keeps releases nothing") {
    DropoutNet net;
    const Segment again(net.model, {0, 1, 2, 3}, false, {1});
    const auto weights = again.initial_weights(1, DType::float32);
    const Pass pass = net.forward(again, weights);
    // in: x; relu: the result of in, instead of its own, which nobody else keeps: dropout saves its mask alone.
    CHECK(net.held() == 400 + 800 + 200 + 800);
  }

  TEST_CASE("only layers of the segment can be recomputed") {
    const ResolvedModel model = branching_model();
    CHECK_THROWS_WITH_AS(Segment(model, {0, 1, 2}, false, {3}),
                         "segment: layer 3 is to be recomputed, but is not in the segment", Error);
  }
}

}  // namespace recompute_test
