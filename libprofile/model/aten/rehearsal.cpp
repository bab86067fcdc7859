#include "libprofile/model/aten/rehearsal.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/model/aten/outputs.h"

namespace pp::model::aten {
namespace {

at::Tensor without_memory(const RowTensor& tensor, std::int64_t samples) {
  const DType dtype = tensor.type.dtype;
  const at::ScalarType found = is_floating(dtype) ? at::kFloat : scalar_type(dtype);
  return at::empty(full_shape(tensor, samples), at::TensorOptions(at::kMeta).dtype(found));
}
at::Tensor without_memory(const TensorType& type) { return without_memory(RowTensor{type, 0}, 0); }

/// Whether LibTorch could tell; throws when it says that the call is wrong.
bool rehearsed(const AtenCall& call, std::span<const RowTensor> inputs, const c10::OperatorHandle& operation,
               const Arguments& arguments, std::int64_t samples) {
  std::vector<at::Tensor> in, parameters, buffers, constants;
  for (const RowTensor& input : inputs) in.push_back(without_memory(input, samples));
  for (const NamedTensorType& tensor : call.parameters) parameters.push_back(without_memory(tensor.type));
  for (const NamedTensorType& tensor : call.buffers) buffers.push_back(without_memory(tensor.type));
  for (const AtenConstant& constant : call.constants) constants.push_back(without_memory(constant.type));
  torch::jit::Stack stack;
  arguments.push({in, parameters, buffers, constants, samples, at::kFloat, at::kMeta}, stack);
  try {
    operation.callBoxed(stack);
  } catch (const c10::NotImplementedError&) {
    return false;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("meta") != std::string::npos || text.find("Meta") != std::string::npos) return false;
    throw Error(ErrorKind::data, "LibTorch refuses the call: " + text.substr(0, text.find('\n')));
  } catch (const std::exception& error) {  // of the standard library, for sizes out of reach
    throw Error(ErrorKind::data, std::string("LibTorch refuses the call: ") + error.what());
  }
  check_outputs(call.outputs, samples, tensors_of(stack));
  return true;
}

std::int64_t largest_size(const AtenCall& call, std::span<const RowTensor> inputs) {
  std::int64_t largest = 32;
  const auto see = [&](const TensorType& type) {
    for (const std::int64_t size : type.shape) largest = std::max(largest, size);
  };
  for (const RowTensor& input : inputs) see(input.type);
  for (const NamedTensorType& tensor : call.parameters) see(tensor.type);
  for (const NamedTensorType& tensor : call.buffers) see(tensor.type);
  for (const AtenConstant& constant : call.constants) see(constant.type);
  for (const RowTensor& output : call.outputs) see(output.type);
  return largest;
}

}  // namespace

void rehearse(const AtenCall& call, std::span<const RowTensor> inputs, const c10::OperatorHandle& operation,
              const Arguments& arguments) {
  const at::InferenceMode no_inference(false);
  const at::AutoGradMode no_grad(false);
  try {
    if (rehearsed(call, inputs, operation, arguments, 2)) {
      rehearsed(call, inputs, operation, arguments, 3);
      return;
    }
  } catch (Error& error) {
    throw Error(ErrorKind::data, call.target + ": " + error.message());
  }
  const std::int64_t limit = 2 * largest_size(call, inputs);
  if (arguments.largest_integer() > limit) {
    throw Error(ErrorKind::data, call.target + ": the integer " + std::to_string(arguments.largest_integer()) +
                                     " stands in its arguments; for tensors of these sizes at most " +
                                     std::to_string(limit));
  }
}

}  // namespace pp::model::aten
