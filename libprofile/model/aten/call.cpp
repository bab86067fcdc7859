#include "libprofile/model/aten/call.h"

#include <ATen/autocast_mode.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/aten/call_arguments.h"
#include "libprofile/model/aten/call_schema.h"
#include "libprofile/model/aten/convolution_call.h"
#include "libprofile/model/aten/nondeterministic.h"
#include "libprofile/model/aten/outputs.h"
#include "libprofile/model/aten/rehearsal.h"

namespace pp::model::aten {
namespace {

struct Call {
  Call(const AtenCall& spec, std::span<const RowTensor> inputs)
      : operation(find_operation(spec, inputs)),
        arguments(spec, operation.schema()),
        constants(spec.constants),
        outputs(spec.outputs) {}

  c10::OperatorHandle operation;
  Arguments arguments;
  Constants constants;
  std::vector<RowTensor> outputs;
};

/// Of the tensors that the call sees, so that a call without any runs where its graph does.
at::Device device_of(TensorSpan inputs, TensorSpan weights, const LayerContext& context) {
  if (context.device) return *context.device;
  if (!inputs.empty()) return inputs[0].device();
  return weights.empty() ? at::Device(at::kCPU) : weights[0].device();
}

/// Copies of those that are narrower; autograd sees them.
Tensors in_type(TensorSpan tensors, at::ScalarType type) {
  Tensors result(tensors.begin(), tensors.end());
  for (at::Tensor& tensor : result) {
    if (tensor.is_floating_point() && tensor.scalar_type() != type) tensor = tensor.to(type);
  }
  return result;
}

/// A precise call reads copies of what is narrower.
struct Operands {
  Operands(bool precise, at::ScalarType type, TensorSpan in, TensorSpan weights, TensorSpan held)
      : inputs(in), parameters(weights), buffers(held) {
    if (!precise) return;
    inputs = copies[0] = in_type(in, type);
    parameters = copies[1] = in_type(weights, type);
    buffers = copies[2] = in_type(held, type);
  }

  std::array<Tensors, 3> copies;
  TensorSpan inputs, parameters, buffers;
};

}  // namespace

at::ScalarType precise_type(at::ScalarType run) {
  return run == at::kBFloat16 || run == at::kHalf ? at::kFloat : run;
}

BoundCall bind_call(const AtenCall& spec, std::span<const RowTensor> inputs) {
  const auto call = std::make_shared<Call>(spec, inputs);
  rehearse(spec, inputs, call->operation, call->arguments);
  const auto forward = [call, precise = spec.precise](TensorSpan in, TensorSpan weights,
                                                      LayerContext& context) -> Tensors {
    const at::Device device = device_of(in, weights, context);
    const std::int64_t samples = context.samples > 0 ? context.samples : in[0].size(0);
    const at::ScalarType type = precise ? precise_type(context.dtype) : context.dtype;
    const Operands operands(precise, type, in, weights, context.buffers);
    const Frame frame{
        operands.inputs, operands.parameters, operands.buffers, call->constants.on(device, type), samples, type,
        device};
    torch::jit::Stack stack;
    call->arguments.push(frame, stack);
    if (!keep_clear_of_overrun(call->operation.schema(), stack)) call->operation.callBoxed(stack);
    Tensors outputs = tensors_of(stack);
    const bool mixed = at::autocast::is_autocast_enabled(device.type());
    check_outputs(call->outputs, samples, outputs);
    for (at::Tensor& output : outputs) {
      if (!mixed && output.is_floating_point()) output = output.to(type);
    }
    return outputs;
  };
  return {forward, {call, &call->constants}, {}, !is_nondeterministic(spec)};
}

}  // namespace pp::model::aten
