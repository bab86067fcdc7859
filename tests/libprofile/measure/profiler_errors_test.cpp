// What the profiler refuses, with the whole message.
#include "libprofile/core/error.h"
#include "libprofile/device/process.h"
#include "libprofile/measure/profile_run.h"
#include "tests/libprofile/measure/fakes.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/support/torch_test.h"

namespace pp::profile::profiler_errors_test {
namespace {

using model::test::GraphBuilder;
using model::test::whole;

ModelGraph line() {
  return GraphBuilder()
      .input("x", {4})
      .layer("y", "linear", {"x"}, {{"out_features", whole(4)}})
      .output("y")
      .build()
      .graph;
}

struct Refusal {
  ErrorKind kind = ErrorKind::internal;
  std::string text;
  bool operator==(const Refusal&) const = default;
};

/// What profiling `graph` on a machine of one core and `memory` throws.
Refusal refusal(const ModelGraph& graph, const ProfileOptions& options, Bytes memory = Bytes(1 << 30)) {
  prepare_process();
  const SteadyClock clock;
  test::RecordingObserver observer;
  try {
    profile_model(
        graph, options, observer,
        {.clock = clock, .machine = {.cores = {0}, .why_no_cuda = "this build has no CUDA"}, .memory = memory});
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {ErrorKind::internal, "nothing was thrown"};
}

}  // namespace

TEST_SUITE("libprofile/measure/profiler_errors") {
  TEST_CASE("micro-batch sizes must be there, positive and rising") {
    CHECK(refusal(line(), {.micro_batch_sizes = {}}) ==
          Refusal{ErrorKind::usage, "micro-batch sizes: none given; name at least one, such as 1,2,4"});
    CHECK(refusal(line(), {.micro_batch_sizes = {0}}) ==
          Refusal{ErrorKind::usage, "micro-batch sizes: 0 must be at least 1; leave it out"});
    CHECK(
        refusal(line(), {.micro_batch_sizes = {1, 4, 4}}) ==
        Refusal{ErrorKind::usage, "micro-batch sizes: 4 after 4 must be larger; name each size once, rising"});
    CHECK(
        refusal(line(), {.micro_batch_sizes = {8, 2}}) ==
        Refusal{ErrorKind::usage, "micro-batch sizes: 2 after 8 must be larger; name each size once, rising"});
  }

  TEST_CASE("automatic sizes are those of a whole model") {
    CHECK(
        refusal(line(), {.mode = ProfileMode::isolated, .size_choice = SizeChoice::automatic}) ==
        Refusal{ErrorKind::usage,
                "micro-batch sizes: auto would choose others for each layer alone; list them, such as 1,2,4"});
  }

  TEST_CASE("a device that does not exist is refused with those that do") {
    CHECK(refusal(line(), {.devices = {.first = 3}}) ==
          Refusal{ErrorKind::device,
                  "device \"cpu:3\" does not exist; this machine has cpu:0 (this build has no CUDA)"});
  }

  TEST_CASE("a CUDA device that does not exist is refused in the same words") {
    CHECK(refusal(line(), {.devices = {.kind = DeviceKind::cuda, .first = 7}}) ==
          Refusal{ErrorKind::device,
                  "device \"cuda:7\" does not exist; this machine has cpu:0 (this build has no CUDA)"});
  }

  TEST_CASE("a dtype without gradients is refused") {
    CHECK(refusal(line(), {.dtype = DType::int64}) ==
          Refusal{ErrorKind::usage, "dtype int64 has no gradients; use float32, float64 or bfloat16"});
  }

  TEST_CASE("autocast is of float32 weights, and of a whole model") {
    CHECK(refusal(line(), {.dtype = DType::float64, .autocast = Autocast::bfloat16}) ==
          Refusal{ErrorKind::usage,
                  "autocast casts products of float32 weights, and dtype is float64; leave one of them out"});
    CHECK(refusal(line(), {.mode = ProfileMode::isolated, .autocast = Autocast::bfloat16}).text ==
          "autocast: types of a layer's inputs follow from the layers before it, which mode isolated does not "
          "run; profile in-place, or without autocast");
  }

  TEST_CASE("a model that does not fit at all is refused, not recorded") {
    // Weights 4*4 + 4 floats: 64 and 16 bytes, and gradient buffers of the same sizes.
    CHECK(refusal(line(), {.micro_batch_sizes = {1}}, Bytes(100)) ==
          Refusal{ErrorKind::device,
                  "weights and gradients: out of memory: 64 bytes asked for, 80 of 100 bytes in use; each of 1 "
                  "devices "
                  "has 100 B: profile a smaller model or size, or fewer devices at once"});
  }

  TEST_CASE("a size at which the model cannot run is refused with the layer") {
    const ModelGraph graph =
        GraphBuilder().input("x", {2, 1, 1}).layer("norm", "batch_norm2d", {"x"}).output("norm").build().graph;
    CHECK(refusal(graph, {.micro_batch_sizes = {1}}) ==
          Refusal{ErrorKind::data,
                  "micro-batch size 1: layer \"norm\" (batch_norm2d): batch norm: micro-batch 0 has 1 value "
                  "per channel; "
                  "lower micro_batches; correct the model, or leave this micro-batch size out"});
  }
}

}  // namespace pp::profile::profiler_errors_test
