// Operations that have kernels of their own on a GPU, whose backward is written: in the types that those
// kernels are for, against autograd on a CPU in float64.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "libprofile/device/compute_device.h"
#include "libprofile/model/determinism.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace gpu_fused_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

TensorType real(Shape shape) { return {std::move(shape), DType::float32}; }
Attribute whole(std::int64_t value) { return value; }

/// Several blocks of keys, groups of heads, rotation, norms; rows of 131 numbers, which half types leave
/// unaligned.
std::vector<OpCase> fused_cases() {
  const std::vector<TensorType> heads{real({160, 64}), real({160, 32}), real({160, 32})};
  return {
      {"multi_head_attention", {real({160, 64})}, {{"num_heads", whole(2)}, {"causal", true}}},
      {"multi_head_attention", {real({160, 64})}, {{"num_heads", whole(4)}}},
      {"grouped_query_attention", heads, {{"num_heads", whole(4)}, {"num_key_value_heads", whole(2)}}},
      {"grouped_query_attention",
       {real({160, 64}), real({160, 64}), real({160, 64})},
       {{"num_heads", whole(4)}, {"num_key_value_heads", whole(4)}, {"rotary_dim", whole(16)}}},
      {"grouped_query_attention",
       heads,
       {{"num_heads", whole(4)},
        {"num_key_value_heads", whole(2)},
        {"rotary_dim", whole(16)},
        {"norms", true}}},
      {"rms_norm", {real({160, 64})}, {}},
      {"rms_norm", {real({160, 64})}, {{"offset", 1.0}}},
      {"linear", {real({1100, 64})}, {{"out_features", whole(131)}}},
  };
}

struct Result {
  at::Tensor output;
  std::vector<at::Tensor> of_inputs;
};

Result by_autograd(const OpInstance& op) {
  OpInstance traced = op;
  for (at::Tensor& input : traced.inputs) input = input.detach().requires_grad_();
  const at::Tensor output = traced()[0];
  return {output.detach(), torch::autograd::grad({output}, {traced.inputs}, {at::ones_like(output)})};
}

Result by_kernels(const OpCase& op_case, const OpInstance& op, at::ScalarType type, const at::Device& device) {
  const BoundLayer layer = bind_layer(op_case.op, complete(op_case.op, op_case.attributes));
  const c10::AutoGradMode no_grad(false);
  const model::detail::Determinism determinism(layer.deterministic);
  std::vector<at::Tensor> inputs, weights;
  for (const at::Tensor& input : op.inputs) inputs.push_back(input.to(device, type));
  for (const at::Tensor& weight : op.weights) weights.push_back(weight.to(device, type));
  REQUIRE(layer.backward);
  if (layer.backward->applies) REQUIRE(layer.backward->applies(inputs));
  Tensors saved;
  LayerContext context{.key = {.seed = 3}, .layer = 1, .buffers = {}, .dtype = type};
  context.saved = &saved;
  const at::Tensor output = layer.forward(inputs, weights, context)[0];
  const at::Tensor ones = at::ones_like(output);
  Tensors gradients = layer.backward->both ? layer.backward->both(saved, weights, ones)
                                           : layer.backward->inputs(saved, weights, ones);
  gradients.resize(inputs.size());
  return {output, {gradients.begin(), gradients.end()}};
}

/// Of the largest value.
double error_of(const at::Tensor& found, const at::Tensor& exact) {
  const at::Tensor off = found.cpu().to(at::kDouble).sub(exact);
  return off.abs().max().item<double>() / exact.abs().max().item<double>();
}

}  // namespace

TEST_SUITE("gpu/libprofile/model/fused") {
  // A sum of some hundred products in float32 has errors of 1e-6, a value of bfloat16 2^-9 and steps in
  // between.
  TEST_CASE("results and gradients are those of float64, to the rounding of the type") {
    PP_NEEDS_CUDA(1);
    pp::test::on_own_thread([] {
      const at::Device device = profile::tensor_device(DeviceKind::cuda, 0);
      profile::enter_device(device, /*threads=*/1);
      for (const OpCase& op_case : fused_cases()) {
        OpInstance op = instantiate(op_case, 2);
        for (at::Tensor& weight : op.weights) weight.mul_(0.125);  // 1 / sqrt(64): scores stay near 1
        const Result exact = by_autograd(op);
        for (const auto& [type, most] : {std::pair{at::kFloat, 2e-5}, std::pair{at::kBFloat16, 0.03}}) {
          const std::string text = to_text(op_case) + " " + c10::toString(type);
          CAPTURE(text);
          const Result found = by_kernels(op_case, op, type, device);
          CHECK(error_of(found.output, exact.output) < most);
          REQUIRE(found.of_inputs.size() == exact.of_inputs.size());
          for (std::size_t i = 0; i < exact.of_inputs.size(); ++i)
            CHECK(error_of(found.of_inputs[i], exact.of_inputs[i]) < most);
        }
      }
    });
  }
}

}  // namespace gpu_fused_test
