// Which kernels LibTorch is asked for on a GPU. No GPU is needed to look at the setting.
#include <ATen/Context.h>

#include <future>
#include <optional>
#include <thread>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/determinism.h"
#include "libprofile/model/ops.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

namespace determinism_test {

using namespace pp;
using model::detail::Determinism;

namespace {

/// As entering a GPU leaves it.
class AsOnGpu {
 public:
  AsOnGpu() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); }
  ~AsOnGpu() { at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false); }
};

bool only_warns() { return at::globalContext().deterministicAlgorithmsWarnOnly(); }

AtenCall call_of(std::string target, DType made = DType::float32) {
  AtenCall call;
  call.target = std::move(target);
  call.outputs = {{{.shape = {4}, .dtype = made}, 1}};
  return call;
}

}  // namespace

TEST_SUITE("libprofile/model/determinism") {
  TEST_CASE("without a GPU the setting is left alone") {
    const Determinism none(false);
    CHECK_FALSE(at::globalContext().deterministicAlgorithms());
    CHECK_FALSE(only_warns());
  }

  TEST_CASE("warnings in place of errors last as long as the operation that has no deterministic kernel") {
    const AsOnGpu gpu;
    {
      const Determinism required(true);
      CHECK_FALSE(only_warns());
    }
    {
      const Determinism none(false);
      CHECK(at::globalContext().deterministicAlgorithms());
      CHECK(only_warns());
    }
    CHECK_FALSE(only_warns());
  }

  TEST_CASE("no other thread computes meanwhile; threads that require determinism compute at once") {
    const AsOnGpu gpu;
    std::optional<Determinism> mine(std::in_place, true);
    std::promise<void> beside;
    std::thread also([&] {
      const Determinism required(true);
      beside.set_value();
    });
    beside.get_future().wait();  // would not end if they excluded each other
    also.join();
    std::promise<bool> saw;
    std::thread alone([&] {
      const Determinism none(false);
      saw.set_value(only_warns());
    });
    std::future<bool> result = saw.get_future();
    CHECK(result.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
    CHECK_FALSE(only_warns());
    mine.reset();
    CHECK(result.get());
    alone.join();
  }

  TEST_CASE("operations of the table: those whose backward adds with atomics") {
    for (const model::test::OpCase& op : model::test::op_cases()) {
      CAPTURE(op.op);
      const bool expected = op.op != "adaptive_avg_pool2d" && op.op != "upsample_bilinear2d";
      CHECK(model::bind_layer(op.op, model::test::complete(op.op, op.attributes)).deterministic == expected);
    }
  }

  TEST_CASE("calls of LibTorch: by name, but for whole numbers and for padding with zeros") {
    using model::aten::is_nondeterministic;
    CHECK(is_nondeterministic(call_of("aten::upsample_bilinear2d.vec")));
    CHECK(is_nondeterministic(call_of("aten::cumsum")));
    CHECK_FALSE(is_nondeterministic(call_of("aten::cumsum", DType::int64)));
    CHECK_FALSE(is_nondeterministic(call_of("aten::scaled_dot_product_attention")));
    CHECK_FALSE(is_nondeterministic(call_of("aten::pad")));
    AtenCall pad = call_of("aten::pad");
    pad.arguments["mode"].value = std::string("constant");
    CHECK_FALSE(is_nondeterministic(pad));
    pad.arguments["mode"].value = std::string("reflect");
    CHECK(is_nondeterministic(pad));
  }
}

}  // namespace determinism_test
