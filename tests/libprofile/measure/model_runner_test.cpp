// Bytes and times of one pass against counts by hand. float32 everywhere, n = 2 samples.
#include "libprofile/measure/model_runner.h"

#include <fstream>

#include "libprofile/device/process.h"
#include "tests/libprofile/measure/fakes.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/support/torch_test.h"

namespace pp::profile::model_runner_test {
namespace {

using model::test::GraphBuilder;
using model::test::whole;
using Phase = model::LayerObserver::Phase;

ResolvedModel image_model() {
  return GraphBuilder()
      .input("image", {3, 8, 8})
      .target("label", {})
      .layer("conv", "conv2d", {"image"},
             {{"out_channels", whole(4)}, {"kernel_size", whole(3)}, {"padding", whole(1)}})
      .layer("norm", "batch_norm2d", {"conv"})
      .layer("relu", "relu", {"norm"})
      .layer("add", "add", {"relu", "norm"})
      .layer("pool", "max_pool2d", {"add"}, {{"kernel_size", whole(2)}, {"stride", whole(2)}})
      .layer("drop", "dropout", {"pool"}, {{"p", 0.5}})
      .layer("flat", "flatten", {"drop"})
      .layer("head", "linear", {"flat"}, {{"out_features", whole(5)}})
      .output("head")
      .loss("cross_entropy", "head", "label")
      .build();
}

ResolvedModel small_chain() {
  return GraphBuilder()
      .input("x", {4})
      .target("label", {})
      .layer("first", "linear", {"x"}, {{"out_features", whole(6)}})
      .layer("relu", "relu", {"first"})
      .layer("second", "linear", {"relu"}, {{"out_features", whole(3)}})
      .output("second")
      .loss("cross_entropy", "second", "label")
      .build();
}

/// A runner on the test's own thread.
struct Bench {
  explicit Bench(ResolvedModel graph, DType dtype = DType::float32,
                 std::optional<at::ScalarType> autocast = std::nullopt)
      : model(std::move(graph)) {
    prepare_process();
    const ChargeMemory charged(account);
    runner.emplace(model, whole_model(model),
                   RunnerOptions{.micro_batch_sizes = {2, 4}, .dtype = dtype, .autocast = autocast}, account,
                   at::kCPU, timer);
  }
  PassBytes bytes(std::size_t size) {
    const ChargeMemory charged(account);
    return runner->measure_bytes(size);
  }
  VisitTimes visit(const Visit& visit, int in_flight = 1) {
    const ChargeMemory charged(account);
    return runner->run_visit(visit, in_flight);
  }

  ResolvedModel model;
  test::CountingClock clock;
  ClockTimer timer{clock};
  MemoryAccount account;
  std::optional<ModelRunner> runner;
};

using AllBytes = std::vector<Bytes>;

}  // namespace

TEST_SUITE("libprofile/measure/model_runner") {
  TEST_CASE("saved bytes are those that autograd keeps, each storage at the first layer that keeps it") {
    Bench bench(image_model());
    const PassBytes bytes = bench.bytes(0);
    // conv: its input, 2*3*8*8 floats. The weight is a parameter.
    CHECK(bytes.saved[0] == SavedBytes{Bytes(1536), Bytes(1536)});
    // norm: its input, 2*4*8*8 floats, and mean and deviation of 4 channels.
    CHECK(bytes.saved[1] == SavedBytes{Bytes(2048 + 32), Bytes(2048)});
    // relu: its output, which is nobody's input yet.
    CHECK(bytes.saved[2] == SavedBytes{Bytes(2048), Bytes(0)});
    // add: nothing.
    CHECK(bytes.saved[3] == SavedBytes{});
    // pool: its input, and an int64 index per output, 2*4*4*4.
    CHECK(bytes.saved[4] == SavedBytes{Bytes(2048 + 1024), Bytes(2048)});
    // drop: a mask of one byte per element, 2*64.
    CHECK(bytes.saved[5] == SavedBytes{Bytes(128), Bytes(0)});
    // flat: a view.
    CHECK(bytes.saved[6] == SavedBytes{});
    // head: its input, 2*64 floats: the dropout's output, which the dropout itself does not keep.
    CHECK(bytes.saved[7] == SavedBytes{Bytes(512), Bytes(512)});
    // loss: the logarithms, 2*5 floats, the labels, 2 int64, and the sum of weights, one float.
    CHECK(bytes.saved[8] == SavedBytes{Bytes(40 + 16 + 4), Bytes(16)});
  }

  // Two images of 12 MiB are the data set, of which the runner draws; a batch is two more.
  TEST_CASE("samples are as few as their size asks for, and no worker pays for them") {
    prepare_process();
    const auto resident = [] {
      std::int64_t all = 0, pages = 0;
      std::ifstream("/proc/self/statm") >> all >> pages;
      return pages * 4096;
    };
    const std::int64_t before = resident();
    Bench bench(GraphBuilder()
                    .input("image", {3, 1024, 1024})
                    .layer("pool", "adaptive_avg_pool2d", {"image"}, {{"output_size", whole(1)}})
                    .output("pool")
                    .build());
    const Bytes image(std::int64_t{12} << 20);
    const PassBytes bytes = bench.bytes(0);
    CHECK(bytes.peak >= image + image);  // a batch, without the data set
    CHECK(bytes.peak < image + image + Bytes(1 << 20));
    CHECK(resident() - before < 8 * image.value);
  }

  TEST_CASE("between the halves of backward wait the inputs and output gradients of layers with weights") {
    Bench bench(image_model());
    const PassBytes bytes = bench.bytes(0);
    AllBytes expected(9);
    expected[0] =
        Bytes(1536 + 2048);  // conv: its input, which stands in the batch, and the gradient of its output
    expected[1] = Bytes(2 * 4 * 4);  // norm: its weight gradients, which came with its input gradient
    expected[7] = Bytes(512 + 40);   // head
    CHECK((bytes.waiting == expected));
  }

  TEST_CASE("attention keeps what was projected, the sums of its scores, and the inputs of both projections") {
    // n = 2, s = 3, d = 4, two heads of width 2; no dropout.
    Bench bench(GraphBuilder()
                    .input("x", {3, 4})
                    .layer("attention", "multi_head_attention", {"x"}, {{"num_heads", whole(2)}})
                    .output("attention")
                    .build());
    // The input of the first projection, 2*3*4 floats. Queries, keys and values as they were projected, 2*3*12
    // floats. The logarithm of the sum of exponentials of each row of scores, 2*2*3 floats; no scores. The
    // input of the last projection, 2*3*4 floats.
    CHECK(bench.bytes(0).saved[0] == SavedBytes{Bytes(96 + 3 * 96 + 48 + 96), Bytes(96)});
  }

  TEST_CASE("bytes grow with the micro-batch, and double with the dtype") {
    Bench single(image_model()), twice(image_model(), DType::float64);
    CHECK(single.bytes(1).saved[0].total == Bytes(2 * 1536));
    CHECK(twice.bytes(0).saved[0].total == Bytes(2 * 1536));
    CHECK(twice.bytes(0).outputs[2] == Bytes(2 * 2048));
  }

  TEST_CASE("under autocast products keep half copies of inputs and weights, and hand on half outputs") {
    Bench bench(small_chain(), DType::float32, at::kBFloat16);
    const PassBytes bytes = bench.bytes(0);
    // Outputs of 2*6, 2*6 and 2*3 halves; the loss is a float.
    CHECK((bytes.outputs == AllBytes{Bytes(24), Bytes(24), Bytes(12), Bytes(4)}));
    // first: the half copy of its input, 2*4. Its weight is for the gradient of the input, which nobody wants.
    CHECK(bytes.saved[0] == SavedBytes{Bytes(16), Bytes(0)});
    // relu: its half output. second: the half copy of its weight, 3*6; its input is relu's.
    CHECK(bytes.saved[1] == SavedBytes{Bytes(24), Bytes(0)});
    CHECK(bytes.saved[2] == SavedBytes{Bytes(36), Bytes(0)});
    CHECK(bench.runner->output_types() ==
          OutputTypes{{{0, 0}, at::kBFloat16}, {{1, 0}, at::kBFloat16}, {{2, 0}, at::kBFloat16}});
  }

  TEST_CASE("output bytes are the outputs' elements, also of a view; the loss is one scalar") {
    Bench bench(image_model());
    CHECK((bench.bytes(0).outputs == AllBytes{Bytes(2048), Bytes(2048), Bytes(2048), Bytes(2048), Bytes(512),
                                              Bytes(512), Bytes(512), Bytes(40), Bytes(4)}));
  }

  TEST_CASE("workspace is the larger of the pass that begins the gradients and of one that adds to them") {
    // The head's weight gradient: [5, 2] times [2, 64]. oneDNN's product is a tensor of its own, 5*64 floats,
    // which is then copied into its place or added; the usual kernel writes there.
    const auto workspace = [](std::vector<KernelTask> by_onednn) {
      Bench bench(image_model());
      std::vector<KernelChoice> choices;
      for (const KernelTask task : by_onednn)
        choices.push_back(
            {{task, DType::float32, ProductLayout::tn, {5, 2, 64}}, Kernel::onednn, std::nullopt});
      bench.runner->use(std::make_shared<const model::Kernels>(choices));
      return bench.bytes(0).workspace[7];
    };
    const Bytes usual = workspace({}), product(5 * 64 * 4);
    const Bytes begun = workspace({KernelTask::product_into}), added = workspace({KernelTask::product_added});
    CHECK(begun >= usual + product);
    CHECK(added == begun);
    CHECK(workspace({KernelTask::product_into, KernelTask::product_added}) == begun);
  }

  TEST_CASE("workspace is what is live beyond what the layers so far save") {
    Bench bench(image_model());
    const PassBytes bytes = bench.bytes(0);
    // In backward the pass holds the loss, a float. Norm's statistics are those that it saves.
    const std::int64_t always = 4;
    // relu: the gradients of its output and of its input.
    CHECK(bytes.workspace[2].value == 2 * 2048 + always);
    // add: in forward its sum, which stands over norm's output and which nobody saves; in backward the output
    // gradient, which is that of both inputs.
    CHECK(bytes.workspace[3].value == 2048 + always);
    // flat: the input gradient is a view of the output gradient.
    CHECK(bytes.workspace[6].value == 512 + always);
    // head: gradients of output 2*5, input 2*64 and bias 5 floats; the weight's is made in its sum.
    CHECK(bytes.workspace[7].value == 40 + 512 + 20 + always);
  }

  TEST_CASE(
      "between forward and backward the pass keeps what the layers save, of their own making and of its "
      "batch") {
    Bench bench(small_chain());
    const PassBytes bytes = bench.bytes(0);
    // relu's output 2*6 floats, the logarithms 2*3 floats, the sum of weights, the loss; of the batch the first
    // layer's input 2*4 floats, and the loss's 2 int64.
    CHECK(bytes.kept == Bytes(48 + 24 + 4 + 4 + 32 + 16));
    // Weights 4*6+6+6*3+3 floats, gradients as many, data 2*4 floats and 2 int64: the least there is at any
    // time.
    CHECK(bytes.peak > Bytes(2 * 51 * 4 + 32 + 16 + 80));
    CHECK(bytes.peak < Bytes(2 * 51 * 4 + 32 + 16 + 80 + 1000));
    // The batch of another size is not counted.
    bench.bytes(1);
    CHECK(bench.bytes(0).peak == bytes.peak);
  }

  TEST_CASE("buffers are counted per layer") {
    Bench bench(image_model());
    const AllBytes buffers = bench.runner->buffer_bytes();
    CHECK(buffers[0] == Bytes(0));
    CHECK(buffers[1] == Bytes(2 * 4 * 4));  // running mean and variance of 4 channels
  }

  TEST_CASE("a full pass times forward and backward of every layer and of the loss") {
    Bench bench(small_chain());
    bench.bytes(0);
    const VisitTimes times = bench.visit({.size = 0, .kind = kFull, .dropped = 1, .passes = 3});
    REQUIRE(times.layers.size() == 3);
    CHECK(times.forward.empty());
    // One reading of the clock, a millisecond, per layer.
    const auto of = [&](Phase phase) { return times.layers[0][static_cast<std::size_t>(phase)]; };
    for (std::size_t p = 0; p < 4; ++p) {
      CHECK(of(Phase::forward)[p] == doctest::Approx(1e-3));
      CHECK(of(Phase::backward)[p] == doctest::Approx(1e-3));
      CHECK(of(Phase::input_gradient)[p] == 0.0);
      CHECK(of(Phase::weight_gradient)[p] == 0.0);
    }
    CHECK(pass_seconds(times)[0] == doctest::Approx(8e-3));
  }

  TEST_CASE("a split pass times input and weight gradients, 0 where a layer has none") {
    Bench bench(small_chain());
    bench.bytes(0);
    const VisitTimes times = bench.visit({.size = 0, .kind = kSplit, .passes = 1});
    const auto of = [&](Phase phase, std::size_t p) {
      return times.layers[0][static_cast<std::size_t>(phase)][p] * 1e3;
    };
    CHECK(of(Phase::input_gradient, 0) == 0.0);  // the data wants no gradient
    CHECK(of(Phase::input_gradient, 1) == doctest::Approx(1));
    CHECK(of(Phase::input_gradient, 2) == doctest::Approx(1));
    CHECK(of(Phase::input_gradient, 3) == doctest::Approx(1));
    CHECK(of(Phase::weight_gradient, 2) == doctest::Approx(1));
    CHECK(of(Phase::weight_gradient, 0) == doctest::Approx(1));
    CHECK(of(Phase::weight_gradient, 1) == 0.0);  // no weights
    CHECK(of(Phase::weight_gradient, 3) == 0.0);
    CHECK(of(Phase::backward, 1) == 0.0);
  }

  TEST_CASE("a whole pass times forward and backward without looking at layers") {
    Bench bench(small_chain());
    bench.bytes(0);
    const VisitTimes times = bench.visit({.size = 0, .kind = kWhole, .passes = 2});
    CHECK(times.layers.empty());
    CHECK(times.forward.size() == 2);
    CHECK(times.forward[1] == doctest::Approx(1e-3));
    CHECK(times.backward[1] == doctest::Approx(1e-3));
    CHECK(pass_seconds(times)[0] == doctest::Approx(2e-3));
  }

  TEST_CASE("after an update the first pass is recorded by itself, with any number in flight") {
    Bench bench(small_chain());
    bench.bytes(0);
    for (const int in_flight : {1, 3}) {
      const VisitTimes times =
          bench.visit({.size = 0, .kind = kSplit, .dropped = 1, .after_update = true, .passes = 2}, in_flight);
      CHECK(times.layers.size() == 2);
      REQUIRE(times.first.has_value());
      const auto of = [&](Phase phase, std::size_t p) {
        return (*times.first)[static_cast<std::size_t>(phase)][p] * 1e3;
      };
      CHECK(of(Phase::forward, 2) == doctest::Approx(1));
      CHECK(of(Phase::weight_gradient, 2) == doctest::Approx(1));
      CHECK(of(Phase::backward, 2) == 0.0);
    }
    const VisitTimes whole = bench.visit({.size = 0, .kind = kWhole, .after_update = true, .passes = 1});
    CHECK_FALSE(whole.first.has_value());
    CHECK(whole.forward.size() == 1);
  }

  TEST_CASE("several micro-batches in flight keep as many sets of saved bytes, and none is left over") {
    Bench bench(small_chain());
    const PassBytes bytes = bench.bytes(0);
    const Bytes before = bench.account.live();
    const auto peak_with = [&](int in_flight) {
      bench.account.reset_peak();
      bench.visit({.size = 0, .kind = kFull, .passes = 4}, in_flight);
      return bench.account.peak();
    };
    const Bytes one = peak_with(1);
    CHECK(peak_with(3) - one == bytes.kept * 2);
    CHECK(bench.account.live() == before);
  }

  TEST_CASE("an update at learning rate 0 leaves the weights and is timed per step") {
    Bench bench(small_chain());
    bench.bytes(0);
    const ChargeMemory charged(bench.account);
    std::vector<UpdateRange> ranges(2);  // first and relu; second
    ranges[0] = {0, 2, std::make_unique<model::Optimizer>(OptimizerName::sgd)};
    ranges[1] = {2, 3, std::make_unique<model::Optimizer>(OptimizerName::sgd)};
    bench.runner->time_updates(/*size=*/0, ranges, 2, 3);
    for (const UpdateRange& range : ranges) {
      CHECK(range.seconds.size() == 3);
      CHECK(range.optimizer->state().front().tensors.size() == 2);  // of the weight and of the bias
    }
    CHECK(bench.runner->trained_bytes(ranges[0]) == Bytes((4 * 6 + 6) * 4));
    CHECK(bench.runner->trained_bytes(ranges[1]) == Bytes((6 * 3 + 3) * 4));
  }

  TEST_CASE("a model without a loss runs backward from its outputs") {
    Bench bench(GraphBuilder()
                    .input("x", {4})
                    .layer("first", "linear", {"x"}, {{"out_features", whole(6)}})
                    .layer("last", "relu", {"first"})
                    .output("last")
                    .build());
    const PassBytes bytes = bench.bytes(0);
    CHECK((bytes.outputs == AllBytes{Bytes(48), Bytes(48)}));
    CHECK(bytes.saved[0] == SavedBytes{Bytes(32), Bytes(32)});
    CHECK(bytes.saved[1] == SavedBytes{Bytes(48), Bytes(0)});  // its result, though it stands over its input
    const VisitTimes times = bench.visit({.size = 0, .kind = kFull, .passes = 1});
    CHECK(pass_seconds(times)[0] == doctest::Approx(4e-3));
  }
}

}  // namespace pp::profile::model_runner_test
