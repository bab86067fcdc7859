// Results go into the memory of inputs that nobody else reads, and nowhere else.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include <array>
#include <set>
#include <string>

#include "libprofile/device/hand_over.h"
#include "libprofile/model/gradient_sums.h"
#include "libprofile/model/segment.h"
#include "tests/libprofile/model/counting_allocator.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

namespace overwriting_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

Tensors clones(TensorSpan tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.defined() ? tensor.clone() : tensor);
  return copies;
}

bool are_equal(TensorSpan a, TensorSpan b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !a[i].equal(b[i]))) return false;
  }
  return true;
}

const std::set<std::string> kOverwriting{"add", "grouped_query_attention", "relu", "sigmoid", "tanh"};

}  // namespace

TEST_SUITE("libprofile/model/overwriting") {
  TEST_CASE("an op gives the same bits over its inputs, and leaves those alone that others hold") {
    const c10::AutoGradMode no_grad(false);
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      std::set<std::string> overwriting;
      for (const OpCase& op_case : op_cases()) {
        if (type != at::kDouble && !kOverwriting.contains(op_case.op)) continue;
        const std::string text = to_text(op_case);
        CAPTURE(text);
        CAPTURE(type);
        OpInstance op = instantiate(op_case, 2);
        for (at::Tensor& input : op.inputs) {
          if (input.is_floating_point()) input = input.to(type);
        }
        const Tensors before = clones(op.inputs), held(op.inputs.begin(), op.inputs.end());
        const Tensors weights = clones(op.weights);
        const Tensors expected = op();
        CHECK(are_equal(op.inputs, before));
        for (std::size_t i = 0; i < before.size(); ++i) op.inputs[i] = before[i].clone();
        CHECK(are_equal(op(), expected));
        CHECK(are_equal(op.weights, weights));
        if (!are_equal(op.inputs, before)) overwriting.insert(op_case.op);
      }
      CHECK(overwriting == kOverwriting);
    }
  }

  TEST_CASE("memory that only seems to have one owner is left alone") {
    const at::Tensor owner = at::ones({4});
    CHECK(is_sole_owner(owner));
    std::array<float, 4> elsewhere{};
    CHECK(!is_sole_owner(at::from_blob(elsewhere.data(), {4})));
    CHECK(!is_sole_owner(profile::received(owner, profile::MemoryAccount())));
    const at::Tensor view = owner.view({2, 2});
    CHECK(!is_sole_owner(view));
    CHECK(!is_sole_owner(owner));
  }

  TEST_CASE("a chain without parameters works in the memory of the layer in front of it") {
    CountingAllocator& allocator = CountingAllocator::install();
    // Five samples: x 40 bytes, `in` and each layer of the chain 2000, `out` 200; with a reader of `in` behind
    // the chain, which keeps it.
    const auto peak = [&](bool skip) {
      GraphBuilder builder;
      builder.input("x", {2})
          .layer("in", "linear", {"x"}, {{"out_features", whole(100)}})
          .layer("relu", "relu", {"in"})
          .layer("flat", "flatten", {"relu"})
          .layer("tanh", "tanh", {"flat"});
      if (skip) builder.layer("sum", "add", {"tanh", "in"});
      builder.layer("out", "linear", {skip ? "sum" : "tanh"}, {{"out_features", whole(10)}}).output("out");
      const ResolvedModel model = builder.build();
      const Segment segment(model, skip ? std::vector{0, 1, 2, 3, 4, 5} : std::vector{0, 1, 2, 3, 4}, false);
      const auto weights = segment.initial_weights(1, DType::float32);
      const std::vector<at::Tensor> x{at::ones({5, 2})};
      const PassContext context{.mode = Mode::evaluation, .key = {}, .buffers = {}};
      segment.forward(weights, x, context);  // what libraries keep for themselves
      const std::int64_t before = allocator.live();
      allocator.watch_peak();
      segment.forward(weights, x, context);
      return allocator.peak() - before;
    };
    CHECK(peak(false) == 2000 + 200);
    CHECK(peak(true) == 2000 + 2000);  // relu beside `in`, and nothing else
  }
}

}  // namespace overwriting_test
