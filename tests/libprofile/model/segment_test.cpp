#include "libprofile/model/segment.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>

#include <algorithm>

#include "libprofile/core/error.h"
#include "libprofile/model/errors.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/harness.h"
#include "tests/libprofile/model/models.h"
#include "tests/support/torch_test.h"

namespace segment_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

/// All ways to cut the model once, and every third way to cut it two and three times.
std::vector<std::vector<int>> some_cuts(int layers) {
  std::vector<std::vector<int>> cuts;
  int number = 0;
  for (int a = 1; a < layers; ++a) {
    cuts.push_back({a});
    for (int b = a + 1; b < layers; ++b) {
      if (number++ % 3 == 0) cuts.push_back({a, b});
      for (int c = b + 1; c < layers; ++c) {
        if (number++ % 9 == 0) cuts.push_back({a, b, c});
      }
    }
  }
  return cuts;
}

std::string text_of(const std::vector<int>& cuts) {
  std::string text = "cut before";
  for (const int cut : cuts) text.append(" ").append(std::to_string(cut));
  return text;
}

/// Cuts for which `exact` holds give the bits of the whole model, the others its numbers to rounding.
template <class Exact>
void check_all_cuts(const ResolvedModel& model, DType dtype, Exact&& exact) {
  const Job job{.model = &model, .dtype = dtype};
  const Outcome whole = run_stages(job, cut_at(model, {}));
  for (const std::vector<int>& cuts : some_cuts(model.layer_count())) {
    const std::string text = text_of(cuts);
    CAPTURE(text);
    const Outcome outcome = run_stages(job, cut_at(model, cuts));
    if (exact(cuts)) {
      CHECK(difference(whole, outcome) == "");
    } else {
      CHECK(largest_difference(whole, outcome) < 1e-15);
    }
  }
}

/// For segments whose only output has no consumer but the loss.
std::vector<Tensors> no_gradients(1);

}  // namespace

TEST_SUITE("libprofile/model/segment") {
  TEST_CASE("one micro-batch has the bits of plain autograd over one graph, where no weights are shared") {
    for (const ResolvedModel& model : {residual_model(), branching_model()}) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        const Job job{.model = &model, .dtype = dtype, .micro_batches = {3}};
        CHECK(difference(run_plain(job), run_stages(job, cut_at(model, {}))) == "");
      }
    }
  }

  // From the second micro-batch on a product adds to the sum, and the processor's kernel may round the two
  // together; all else keeps its bits.
  TEST_CASE("several micro-batches have the losses of plain autograd to the bit, its gradients to rounding") {
    for (const ResolvedModel& model : {residual_model(), branching_model()}) {
      for (const auto& [dtype, rounding] :
           {std::pair(DType::float32, 1e-5), std::pair(DType::float64, 1e-14)}) {
        const Job job{.model = &model, .dtype = dtype};
        Outcome plain = run_plain(job);
        const Outcome stages = run_stages(job, cut_at(model, {}));
        CHECK(largest_difference(plain, stages) < rounding);
        plain.gradients = stages.gradients;
        CHECK(difference(plain, stages) == "");
      }
    }
  }

  TEST_CASE("with shared weights the uses add up to plain autograd's gradient") {
    const ResolvedModel model = language_model();
    const Job job{.model = &model, .dtype = DType::float64};
    Outcome plain = run_plain(job);
    Outcome stages = run_stages(job, cut_at(model, {}));
    // Plain autograd adds the two uses within each micro-batch, the segment each use over the micro-batches.
    at::Tensor& first = stages.gradients.front().front();
    at::Tensor& last = stages.gradients.back().front();
    first = last = first.add(last);
    CHECK(largest_difference(plain, stages) < 1e-14);
    plain.gradients = stages.gradients;
    CHECK(difference(plain, stages) == "");
  }

  TEST_CASE("gradients do not depend on where the segments are cut") {
    const auto always = [](const std::vector<int>&) { return true; };
    check_all_cuts(residual_model(), DType::float32, always);
    check_all_cuts(language_model(), DType::float32, always);
  }

  TEST_CASE("a middle segment with two of three consumers changes the order of addition, nothing else does") {
    // Layers 1, 2 and 3 read layer 0. Cut before 1 and 3, the gradient is g3 + (g2 + g1), else (g3 + g2) + g1.
    check_all_cuts(branching_model(), DType::float64, [](const std::vector<int>& cuts) {
      return std::find(cuts.begin(), cuts.end(), 1) == cuts.end() ||
             std::find(cuts.begin(), cuts.end(), 2) != cuts.end() ||
             std::find(cuts.begin(), cuts.end(), 3) == cuts.end();
    });
  }

  TEST_CASE("input gradient and weight gradient together have the bits of backward") {
    for (const ResolvedModel& model : {residual_model(), language_model(), branching_model()}) {
      const Job job{.model = &model};
      const Outcome together = run_stages(job, cut_at(model, {}));
      for (const std::vector<int>& cuts : std::vector<std::vector<int>>{{}, {3}, {2, 5, 8}}) {
        CHECK(difference(together, run_stages(job, cut_at(model, cuts), Halves::apart)) == "");
      }
    }
  }

  TEST_CASE("a segment need not hold neighbouring layers") {
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {4})
                                    .target("t", {2}, DType::float32)
                                    .layer("stem", "linear", {"x"}, {{"out_features", whole(3)}})
                                    .layer("left", "tanh", {"stem"})
                                    .layer("right", "linear", {"stem"}, {{"out_features", whole(3)}})
                                    .layer("join", "add", {"left", "right"})
                                    .layer("head", "linear", {"join"}, {{"out_features", whole(2)}})
                                    .output("head")
                                    .loss("mse", "head", "t")
                                    .build();
    const Job job{.model = &model};
    const Outcome whole = run_stages(job, cut_at(model, {}));
    CHECK(difference(whole, run_stages(job, {{0, 2}, {1}, {3, 4}})) == "");
    CHECK(difference(whole, run_stages(job, {{0}, {2}, {1, 3}, {4}})) == "");
  }

  TEST_CASE("the masks depend on seed, step and micro-batch") {
    const ResolvedModel model = residual_model();
    Job job{.model = &model};
    const Outcome first = run_stages(job, cut_at(model, {}));
    job.key.step += 1;
    CHECK(difference(first, run_stages(job, cut_at(model, {}))) != "");
  }

  TEST_CASE("a forward without a record gives the same numbers and cannot be followed by backward") {
    const ResolvedModel model = residual_model();
    const Job job{.model = &model};
    const Segment segment(model, cut_at(model, {}).front(), true);
    const auto weights = segment.initial_weights(1, DType::float32);
    auto generator = at::make_generator<at::CPUGeneratorImpl>();
    const std::vector<at::Tensor> data = data_of(job, 0);
    PassContext context{.key = job.key, .generator = &generator, .buffers = {}};
    const Pass recorded = segment.forward(weights, data, context);
    context.record = Record::none;
    Pass bare = segment.forward(weights, data, context);
    CHECK(bare.loss.equal(recorded.loss));
    CHECK(bare.outputs[0].equal(recorded.outputs[0]));
    CHECK(weights.use_count() == 2);  // ours and the recorded pass's
    Gradients gradients = segment.empty_gradients();
    CHECK_THROWS_WITH_AS(segment.backward(bare, no_gradients, 1.0, gradients),
                         "segment: backward of a pass without graphs; run forward in training mode first",
                         Error);
  }

  TEST_CASE("evaluation leaves dropout out, uses the running statistics and holds nothing") {
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {2, 1, 1})
                                    .layer("norm", "batch_norm2d", {"x"}, {{"eps", 0.0}})
                                    .layer("drop", "dropout", {"norm"}, {{"p", 0.5}})
                                    .output("drop")
                                    .build();
    const Segment segment(model, {0, 1}, false);
    const auto weights = segment.initial_weights(1, DType::float32);
    std::vector<std::vector<at::Tensor>> buffers = segment.initial_buffers(DType::float32);
    buffers[0][0].fill_(1.0);  // mean
    buffers[0][1].fill_(4.0);  // variance: y = (x - 1) / 2
    const at::Tensor x = at::ones({1, 2, 1, 1}).mul(7.0);
    const Pass pass =
        segment.forward(weights, std::vector{x}, {.mode = Mode::evaluation, .key = {}, .buffers = buffers});
    CHECK(pass.outputs[0].equal(at::ones({1, 2, 1, 1}).mul(3.0)));
    CHECK(pass.statistics.empty());
    CHECK(weights.use_count() == 1);
  }

  TEST_CASE("an observer sees every layer's part, and only those with work") {
    // A linear layer at the start needs no input gradient, a tanh has no weight gradient.
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {2})
                                    .target("t", {2}, DType::float32)
                                    .layer("in", "linear", {"x"}, {{"out_features", whole(2)}})
                                    .layer("tanh", "tanh", {"in"})
                                    .output("tanh")
                                    .loss("mse", "tanh", "t")
                                    .build();
    struct Log : LayerObserver {
      std::string text;
      void begin(int position, Phase phase) override {
        text.append(std::to_string(position)).push_back("FBIW"[static_cast<int>(phase)]);
      }
      void end(int, Phase) override { text += " "; }
    } log;
    const Job job{.model = &model};
    const Segment segment(model, {0, 1}, true);
    const auto weights = segment.initial_weights(1, DType::float32);
    Gradients gradients = segment.empty_gradients();
    for (const Halves halves : {Halves::together, Halves::apart}) {
      Pass pass = segment.forward(weights, data_of(job, 0), {.key = {}, .buffers = {}}, &log);
      if (halves == Halves::together) segment.backward(pass, no_gradients, 1.0, gradients, &log);
      if (halves == Halves::apart) segment.input_gradient(pass, no_gradients, 1.0, &log);
      if (halves == Halves::apart) segment.weight_gradient(pass, gradients, &log);
    }
    CHECK(log.text == "0F 1F 2F 2B 1B 0B 0F 1F 2F 2I 1I 0W ");
  }

  TEST_CASE("a pass keeps its version of the weights until its backward is done") {
    const ResolvedModel model = branching_model();
    const Job job{.model = &model};
    const Segment segment(model, cut_at(model, {}).front(), true);
    auto weights = segment.initial_weights(1, DType::float32);
    const std::weak_ptr<const Weights> version = weights;
    Gradients gradients = segment.empty_gradients();
    Pass pass = segment.forward(std::move(weights), data_of(job, 0), {.key = {}, .buffers = {}});
    CHECK(version.use_count() == 1);
    segment.backward(pass, no_gradients, 1.0, gradients);
    CHECK(version.expired());
  }

  TEST_CASE("a failing layer is named") {
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {4})
                                    .layer("fc", "linear", {"x"}, {{"out_features", whole(2)}})
                                    .output("fc")
                                    .build();
    const Segment segment(model, {0}, false);
    const auto weights = segment.initial_weights(1, DType::float32);
    try {
      segment.forward(weights, std::vector{at::ones({2, 3})}, {.key = {}, .buffers = {}});
      FAIL("3 features must not pass");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::run);
      CHECK(error.contexts() == std::vector<std::string>{"layer \"fc\" (linear)"});
      CHECK(error.message().find("mat1 and mat2 shapes cannot be multiplied") != std::string::npos);
      CHECK(error.message().find("frame #") == std::string::npos);
    }
  }

  TEST_CASE("a batch norm layer refuses one value per channel") {
    const ResolvedModel model =
        GraphBuilder().input("x", {2, 1, 1}).layer("norm", "batch_norm2d", {"x"}).output("norm").build();
    const Segment segment(model, {0}, false);
    const auto weights = segment.initial_weights(1, DType::float32);
    const PassContext context{.key = {.seed = 1, .step = 0, .micro_batch = 3}, .buffers = {}};
    CHECK_THROWS_WITH_AS(
        segment.forward(weights, std::vector{at::ones({1, 2, 1, 1})}, context),
        "layer \"norm\" (batch_norm2d): batch norm: micro-batch 3 has 1 value per channel; lower micro_batches",
        Error);
  }

  TEST_CASE("memory that runs out is told apart from other failures") {
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {1})
                                    .layer("fc", "linear", {"x"}, {{"out_features", whole(1)}})
                                    .output("fc")
                                    .build();
    const Segment segment(model, {0}, false);
    auto weights = std::make_shared<Weights>();
    // One number seen as 2^58 output features: the result would need 2^60 bytes.
    const std::int64_t huge = std::int64_t{1} << 58;
    weights->layers = {{at::ones({1, 1}).expand({huge, 1}), at::ones({1}).expand({huge})}};
    CHECK_THROWS_AS(segment.forward(weights, std::vector{at::ones({1, 1})}, {.key = {}, .buffers = {}}),
                    OutOfMemory);
  }
}

}  // namespace segment_test
