// Every op on a CUDA device against the same op on the CPU, whose gradients gradient_test.cpp compares with
// central differences. In float64: there no kernel rounds its operands to TF32.
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "libprofile/device/compute_device.h"
#include "libprofile/model/determinism.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace gpu_gradient_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

/// What an op gives and what it hands back, on the CPU.
struct Result {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor>
      gradients;  ///< of the weights, then of the floating inputs, where every output weighs one
};

Result run_on(const OpInstance& op, const at::Device& device) {
  std::vector<at::Tensor> variables, inputs, weights;
  const auto moved = [&](const at::Tensor& tensor) {
    const at::Tensor here =
        tensor.detach().to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    if (here.is_floating_point()) variables.push_back(here.requires_grad_());
    return here;
  };
  for (const at::Tensor& weight : op.weights) weights.push_back(moved(weight));
  for (const at::Tensor& input : op.inputs) inputs.push_back(moved(input));
  at::Generator generator = profile::make_generator(device, /*seed=*/1);
  LayerContext context{.key = {.seed = 3}, .layer = 1, .generator = &generator, .buffers = {}};
  const Tensors outputs = op.forward(inputs, weights, context);
  Result result{{outputs.begin(), outputs.end()}, {}};
  std::vector<at::Tensor> ones;
  for (const at::Tensor& output : result.outputs) ones.push_back(at::ones_like(output));
  result.gradients = torch::autograd::grad(result.outputs, variables, ones, /*retain_graph=*/false,
                                           /*create_graph=*/false, /*allow_unused=*/true);
  for (auto* tensors : {&result.outputs, &result.gradients}) {
    for (at::Tensor& tensor : *tensors) tensor = tensor.defined() ? tensor.detach().cpu() : tensor;
  }
  return result;
}

/// The case's settings with nothing left to chance: the two devices draw other numbers.
OpCase without_draws(OpCase op_case) {
  for (auto& [name, value] : op_case.attributes) {
    if (name == "dropout" || name == "weight_dropout" || name == "p") value = 0.0;
  }
  return op_case;
}

/// LibTorch's CUDA kernels of these have 1/6 as a float32, also where they compute in float64.
double tolerance_of(const std::string& op) { return op == "hardsigmoid" || op == "hardswish" ? 1e-7 : 1e-9; }

void check_equal(const std::vector<at::Tensor>& cpu, const std::vector<at::Tensor>& cuda, double tolerance) {
  REQUIRE(cpu.size() == cuda.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    CAPTURE(i);
    REQUIRE(cpu[i].defined() == cuda[i].defined());
    if (cpu[i].defined()) CHECK(cuda[i].allclose(cpu[i], tolerance, tolerance));
  }
}

}  // namespace

TEST_SUITE("gpu/libprofile/model/gradients") {
  TEST_CASE("every op's outputs and gradients on cuda:0 equal those on the CPU") {
    PP_NEEDS_CUDA(1);
    pp::test::on_own_thread([] {
      const at::Device device = profile::tensor_device(DeviceKind::cuda, 0);
      profile::enter_device(device, /*threads=*/1);
      for (const OpCase& op_case : op_cases()) {
        const std::string text = to_text(op_case);
        CAPTURE(text);
        const OpInstance op = instantiate(without_draws(op_case), 2);
        const Result cpu = run_on(op, at::kCPU);
        const model::detail::Determinism determinism(
            bind_layer(op_case.op, complete(op_case.op, op_case.attributes)).deterministic);
        const Result cuda = run_on(op, device);
        check_equal(cpu.outputs, cuda.outputs, tolerance_of(op_case.op));
        check_equal(cpu.gradients, cuda.gradients, tolerance_of(op_case.op));
      }
    });
  }
}

}  // namespace gpu_gradient_test
