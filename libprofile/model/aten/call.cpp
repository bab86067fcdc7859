#include "libprofile/model/aten/call.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/model/aten/call_arguments.h"
#include "libprofile/model/aten/call_checks.h"
#include "libprofile/model/determinism.h"
#include "libprofile/model/ops.h"
#include "libprofile/model/ops/convolution_kernels.h"

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

namespace {

/// The argument of this name, which the schema has.
c10::IValue& argument(const c10::FunctionSchema& schema, torch::jit::Stack& stack, const char* name) {
  return stack[static_cast<std::size_t>(*schema.argumentIndexWithName(name))];
}

std::vector<std::int64_t> numbers(const c10::FunctionSchema& schema, torch::jit::Stack& stack,
                                  const char* name) {
  const c10::IValue& value = argument(schema, stack, name);
  return value.isIntList() ? value.toIntVector() : std::vector<std::int64_t>{0};  // "valid" is no padding
}

bool is_transposed(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  if (schema.name() == "aten::convolution") return argument(schema, stack, "transposed").toBool();
  return schema.name().starts_with("aten::conv_transpose");
}

bool is_convolution(const std::string& name) {
  return name == "aten::convolution" || name.starts_with("aten::conv_transpose") || name == "aten::conv1d" ||
         name == "aten::conv2d" || name == "aten::conv3d";
}

}  // namespace

bool keep_clear_of_overrun(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  if (!is_convolution(schema.name())) return false;
  const at::Tensor x = stack[0].toTensor(), weight = stack[1].toTensor();
  const auto stride = numbers(schema, stack, "stride"), padding = numbers(schema, stack, "padding");
  if (!is_transposed(schema, stack)) {
    if (!ops::overruns(x, weight, stride, padding)) return false;
    stack[0] = ops::positions_read(x, weight, stride);
    argument(schema, stack, "stride") = std::vector<std::int64_t>(stride.size(), 1);
    return false;
  }
  const auto output_padding = numbers(schema, stack, "output_padding");
  const ops::TransposedConvolution convolution{stride, padding, output_padding,
                                               argument(schema, stack, "groups").toInt()};
  if (!ops::transposed_overruns(convolution, x, weight)) return false;
  const at::Tensor bias = stack[2].isTensor() ? stack[2].toTensor() : at::Tensor();
  stack = {ops::convolve_transposed(convolution, x, weight, bias)};
  return true;
}

namespace {

template <class T>
at::Tensor filled(const AtenConstant& constant, at::ScalarType type) {
  at::Tensor tensor = at::empty(constant.type.shape, at::TensorOptions(type));
  T* place = tensor.mutable_data_ptr<T>();
  const auto take = [&](const auto& value) { *place++ = static_cast<T>(value); };
  if (const auto* formula = std::get_if<ConstantFormula>(&constant.values)) {
    for_each_value(*formula, constant.type.shape, take);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&constant.values)) {
    std::ranges::for_each(*numbers, take);
  } else {
    std::ranges::for_each(std::get<std::vector<std::int64_t>>(constant.values), take);
  }
  return tensor;
}

/// Floating ones as float64.
at::Tensor on_host(const AtenConstant& constant) {
  const at::InferenceMode no_inference(false);
  switch (constant.type.dtype) {
    case DType::boolean: return filled<bool>(constant, at::kBool);
    case DType::uint8: return filled<std::uint8_t>(constant, at::kByte);
    case DType::int64: return filled<std::int64_t>(constant, at::kLong);
    default: return filled<double>(constant, at::kDouble);
  }
}

}  // namespace

const std::vector<at::Tensor>& Constants::on(const at::Device& device, at::ScalarType dtype) {
  const std::lock_guard held(mutex_);
  const auto found = std::ranges::find_if(
      made_, [&](const Made& made) { return made.device == device && made.dtype == dtype; });
  if (found != made_.end()) return found->tensors;
  const at::InferenceMode no_inference(false);
  const at::AutoGradMode no_grad(false);
  Made made{device, dtype, {}};
  for (const AtenConstant& constant : constants_) {
    const at::Tensor tensor = on_host(constant);
    made.tensors.push_back(tensor.to(device, tensor.is_floating_point() ? dtype : tensor.scalar_type()));
  }
  return made_.emplace_back(std::move(made)).tensors;
}

void Constants::collect(std::vector<at::Tensor>& tensors) {
  const std::lock_guard held(mutex_);
  for (const Made& made : made_) tensors.insert(tensors.end(), made.tensors.begin(), made.tensors.end());
}

}  // namespace pp::model::aten
