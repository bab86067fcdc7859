// A pass holds what the operations save, and not a byte more.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>

#include <vector>

#include "libprofile/model/segment.h"
#include "tests/libprofile/model/counting_allocator.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/support/torch_test.h"

namespace memory_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

/// image [1, 8, 8] -> conv [4, 8, 8] -> relu -> flatten -> linear [10]; two float32 samples:
/// image 512 bytes, conv and relu 2048 each, head 80.
ResolvedModel small_model() {
  return GraphBuilder()
      .input("image", {1, 8, 8})
      .layer("conv", "conv2d", {"image"},
             {{"out_channels", whole(4)}, {"kernel_size", whole(3)}, {"padding", whole(1)}})
      .layer("relu", "relu", {"conv"})
      .layer("flat", "flatten", {"relu"})
      .layer("head", "linear", {"flat"}, {{"out_features", whole(10)}})
      .output("head")
      .build();
}

/// Runs the model once and drops input and output, as a runtime does; every parameter has a gradient buffer
/// already.
struct Fixture {
  CountingAllocator& allocator = CountingAllocator::install();
  ResolvedModel model = small_model();
  Segment segment{model, {0, 1, 2, 3}, false};
  std::shared_ptr<Weights> weights = segment.initial_weights(1, DType::float32);
  Gradients gradients = segment.empty_gradients();
  std::int64_t before = 0;

  Fixture() {
    Pass warm_up = forward(weights);
    std::vector<Tensors> arrived = output_gradient();
    segment.backward(warm_up, arrived, 1.0, gradients);
    before = allocator.live();
  }
  Pass forward(const std::shared_ptr<const Weights>& version) const {
    Pass pass = segment.forward(version, std::vector{at::ones({2, 1, 8, 8})}, {.key = {}, .buffers = {}});
    pass.outputs.clear();
    return pass;
  }
  static std::vector<Tensors> output_gradient() { return {{at::ones({2, 10})}}; }
  std::int64_t held() const { return allocator.live() - before; }
};

/// What is held when each layer's forward has ended.
struct HeldAfter final : LayerObserver {
  explicit HeldAfter(CountingAllocator& of) : allocator(of) {}
  void begin(int, Phase) override {}
  void end(int, Phase) override { bytes.push_back(allocator.live()); }
  CountingAllocator& allocator;
  std::vector<std::int64_t> bytes;
};

}  // namespace

TEST_SUITE("libprofile/model/memory") {
  // 1000 floats, of which relu keeps its result alone: an input that is given away goes with the first relu.
  TEST_CASE("an input that is given away goes with its last reader, another one stays with its owner") {
    CountingAllocator& allocator = CountingAllocator::install();
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {500})
                                    .layer("a", "relu", {"x"})
                                    .layer("b", "relu", {"a"})
                                    .output("b")
                                    .build();
    const Segment segment(model, {0, 1}, false);
    const auto weights = segment.initial_weights(1, DType::float32);
    const auto after_first = [&](bool gives) {
      const std::int64_t before = allocator.live();
      HeldAfter held(allocator);
      Tensors inputs{at::ones({2, 500})};
      const PassContext context{.key = {}, .buffers = {}};
      const Pass pass = gives ? segment.forward(weights, std::move(inputs), context, &held)
                              : segment.forward(weights, TensorSpan(inputs), context, &held);
      return held.bytes.front() - before;
    };
    CHECK(after_first(false) - after_first(true) == 4000);
  }

  TEST_CASE("after forward a pass holds the saved tensors only") {
    const Fixture f;
    Pass pass = f.forward(f.weights);
    // conv saves the image, relu its result, linear the same storage; the result of conv is gone.
    CHECK(f.held() == 512 + 2048);
  }

  TEST_CASE("after backward a pass holds nothing") {
    Fixture f;
    Pass pass = f.forward(f.weights);
    std::vector<Tensors> arrived = Fixture::output_gradient();
    f.segment.backward(pass, arrived, 1.0, f.gradients);
    CHECK(f.held() == 0);
  }

  TEST_CASE("what has arrived is let go when the first layer is through with it") {
    CountingAllocator& allocator = CountingAllocator::install();
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {2})
                                    .layer("in", "linear", {"x"}, {{"out_features", whole(100)}})
                                    .layer("a", "gelu", {"in"})
                                    .layer("b", "relu", {"a"})
                                    .output("b")
                                    .build();
    const Segment segment(model, {0, 1, 2}, false);
    const auto weights = segment.initial_weights(1, DType::float32);
    Gradients gradients = segment.empty_gradients();
    for (const bool last : {false, true}) {
      Pass pass = segment.forward(weights, std::vector{at::ones({5, 2})}, {.key = {}, .buffers = {}});
      pass.outputs.clear();
      std::vector<Tensors> arrived{{at::ones({5, 100})}};
      allocator.watch_peak();
      const std::int64_t before = allocator.live();
      segment.backward(pass, arrived, 1.0, gradients);
      // relu makes a gradient [5, 100] and frees as much that it has saved; gelu makes another one.
      if (last) CHECK(allocator.peak() - before == 2000);
    }
  }

  TEST_CASE(
      "between the halves of backward it holds saved tensors and output gradients of layers with parameters") {
    Fixture f;
    Pass pass = f.forward(f.weights);
    std::vector<Tensors> arrived = Fixture::output_gradient();
    f.segment.input_gradient(pass, arrived, 1.0);
    // head: its input (relu's result) and its output gradient; conv: the image and the gradient behind relu.
    CHECK(f.held() == (2048 + 80) + (512 + 2048));
    f.segment.weight_gradient(pass, f.gradients);
    CHECK(f.held() == 0);
  }

  TEST_CASE("between the halves a norm holds its weight gradients only") {
    CountingAllocator& allocator = CountingAllocator::install();
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {2})
                                    .layer("in", "linear", {"x"}, {{"out_features", whole(100)}})
                                    .layer("norm", "layer_norm", {"in"})
                                    .output("norm")
                                    .build();
    const Segment segment(model, {0, 1}, false);
    const auto weights = segment.initial_weights(1, DType::float32);
    const std::vector<at::Tensor> x{at::ones({5, 2})};
    std::vector<Tensors> gradient{{at::ones({5, 100})}};
    const std::int64_t before = allocator.live();
    Pass pass = segment.forward(weights, x, {.key = {}, .buffers = {}});
    pass.outputs.clear();
    // The result of `in` [5, 100], mean and inverse deviation [5, 1].
    CHECK(allocator.live() - before == 2000 + 20 + 20);
    segment.input_gradient(pass, gradient, 1.0);
    // The gradients of norm's weight and bias [100], the output gradient of `in` [5, 100]; what arrived is
    // gone.
    CHECK(allocator.live() - before == 2 * 400 + 2000 - 2000);
  }

  TEST_CASE("between the halves an lstm holds its weight gradients only") {
    CountingAllocator& allocator = CountingAllocator::install();
    const ResolvedModel model =
        GraphBuilder()
            .input("tokens", {4}, DType::int64)
            .layer("rows", "embedding", {"tokens"}, {{"num_embeddings", whole(9)}, {"embedding_dim", whole(8)}})
            .layer("lstm", "lstm", {"rows"}, {{"hidden_size", whole(16)}, {"bias", false}})
            .output("lstm")
            .build();
    const Segment segment(model, {0, 1}, false);
    const auto weights = segment.initial_weights(1, DType::float32);
    const std::vector<at::Tensor> tokens{at::ones({2, 4}, at::kLong)};
    std::vector<Tensors> gradient{{at::ones({2, 4, 16})}};
    const std::int64_t before = allocator.live();
    Pass pass = segment.forward(weights, tokens, {.key = {}, .buffers = {}});
    pass.outputs.clear();
    segment.input_gradient(pass, gradient, 1.0);
    // weight_ih [64, 8] and weight_hh [64, 16]; the output gradient of `rows` [2, 4, 8]. What embedding saves,
    // the tokens, is ours. What arrived is gone, [2, 4, 16].
    CHECK(allocator.live() - before == 64 * 24 * 4 + 64 * 4 - 128 * 4);
  }

  TEST_CASE("a dropped pass holds nothing") {
    const Fixture f;
    {
      const Pass pass = f.forward(f.weights);
      CHECK(f.held() > 0);
    }
    CHECK(f.held() == 0);
  }

  TEST_CASE("evaluation and a forward without a record hold nothing") {
    const Fixture f;
    const std::vector<at::Tensor> image{at::ones({2, 1, 8, 8})};
    const Pass evaluated =
        f.segment.forward(f.weights, image, {.mode = Mode::evaluation, .key = {}, .buffers = {}});
    const Pass bare = f.segment.forward(f.weights, image, {.record = Record::none, .key = {}, .buffers = {}});
    CHECK(f.held() == 512 + 80 + 80);  // our image and the two outputs
  }

  TEST_CASE("dropout keeps one byte per element") {
    CountingAllocator& allocator = CountingAllocator::install();
    const ResolvedModel model = GraphBuilder()
                                    .input("x", {8})
                                    .layer("in", "linear", {"x"}, {{"out_features", whole(100)}})
                                    .layer("drop", "dropout", {"in"}, {{"p", 0.5}})
                                    .output("drop")
                                    .build();
    const Segment segment(model, {0, 1}, false);
    const auto weights = segment.initial_weights(1, DType::float32);
    const std::vector<at::Tensor> x{at::ones({2, 8})};
    auto generator = at::make_generator<at::CPUGeneratorImpl>();
    const std::int64_t before = allocator.live();
    Pass pass = segment.forward(weights, x, {.key = {}, .generator = &generator, .buffers = {}});
    pass.outputs.clear();
    CHECK(allocator.live() - before == 2 * 100);
  }
}

}  // namespace memory_test
