#include "libprofile/model/aten/call_checks.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/error.h"

namespace pp::model::aten {

namespace {

using namespace std::string_view_literals;

[[noreturn]] void refuse(const AtenCall& call, const std::string& reason) {
  throw Error(ErrorKind::data, call.target + ": " + reason);
}

/// Names with an underscore, and those of one backend, are LibTorch's own business, and not all of them check
/// what they are given. These appear in exported graphs.
bool is_private(std::string_view name) {
  constexpr std::array kKnown{"_softmax"sv,
                              "_log_softmax"sv,
                              "_to_copy"sv,
                              "_unsafe_view"sv,
                              "_weight_norm"sv,
                              "_reshape_alias"sv,
                              "_upsample_bicubic2d_aa"sv,
                              "_upsample_bilinear2d_aa"sv,
                              "_upsample_nearest_exact1d"sv,
                              "_upsample_nearest_exact2d"sv,
                              "_upsample_nearest_exact3d"sv};
  constexpr std::array kBackends{"slow_"sv,   "thnn_"sv,   "cudnn_"sv,     "miopen_"sv,
                                 "mkldnn_"sv, "fbgemm_"sv, "quantized_"sv, "sparse_"sv};
  if (std::ranges::any_of(kBackends, [&](std::string_view prefix) { return name.starts_with(prefix); }))
    return true;
  return name.starts_with('_') && !name.starts_with("__") && std::ranges::find(kKnown, name) == kKnown.end();
}

/// Leave memory as they find it, read files, or change what a tensor is.
bool has_hidden_effect(std::string_view name) {
  constexpr std::array kEffects{"from_file"sv, "resize"sv, "resize_as"sv, "set"sv, "set_data"sv};
  // Polynomials take as long as their degree is high.
  return name.starts_with("empty") || name.find("polynomial") != std::string_view::npos ||
         name.starts_with("new_empty") || std::ranges::find(kEffects, name) != kEffects.end();
}

const AtenValue* argument(const AtenCall& call, std::string_view name) {
  const auto found = call.arguments.find(name);
  return found == call.arguments.end() ? nullptr : &found->second;
}

bool is_zero(const AtenValue& value) {
  const auto* number = std::get_if<double>(&value.value);
  const auto* whole = std::get_if<std::int64_t>(&value.value);
  const auto* flag = std::get_if<bool>(&value.value);
  return (number && *number == 0) || (whole && *whole == 0) || (flag && !*flag);
}

/// With a dropout of 0, or out of training, these draw nothing.
bool draws(const c10::FunctionSchema& schema, const AtenCall& call) {
  for (const std::string_view name : {"dropout_p"sv, "dropout"sv, "train"sv, "training"sv}) {
    const auto index = schema.argumentIndexWithName(name);
    if (!index) continue;
    const AtenValue* given = argument(call, name);
    if (given != nullptr ? is_zero(*given) : name == "dropout_p" || name == "training") return false;
  }
  return true;
}

/// Some have shapes by their data only for arguments that a call can do without.
bool shape_by_data(const std::string& name, const AtenCall& call, std::span<const RowTensor> inputs) {
  if (name == "aten::one_hot") {
    const AtenValue* classes = argument(call, "num_classes");
    const auto* count = classes ? std::get_if<std::int64_t>(&classes->value) : nullptr;
    return count == nullptr || *count < 1;
  }
  if (name != "aten::index" && name != "aten::index_put") return true;
  bool masks = false;
  if (const AtenValue* indices = argument(call, "indices")) {
    for_each_tensor(*indices, [&](const TensorArgument& tensor) {
      const DType dtype = dtype_of(call, inputs, tensor);
      masks = masks || dtype == DType::boolean || dtype == DType::uint8;
    });
  }
  return masks;
}

void check_effects(const c10::OperatorHandle& operation, const AtenCall& call,
                   std::span<const RowTensor> inputs) {
  const c10::FunctionSchema& schema = operation.schema();
  const std::string_view name = std::string_view(schema.name()).substr(6);
  if (is_private(name) || name.ends_with("backward") || name.find("_backward_") != std::string_view::npos)
    refuse(call, "is internal to LibTorch; write the operation that calls it");
  if (schema.is_mutable()) refuse(call, "writes to its arguments; call its twin that returns a new tensor");
  if (has_hidden_effect(name))
    refuse(call, "has effects or takes time beside its results; a model may not call it");
  const AtenValue* running = argument(call, "running_mean");
  if (running != nullptr && !std::holds_alternative<std::monostate>(running->value))
    refuse(call, "updates running statistics as it goes; write batch_norm2d or batch_norm1d");
  if (operation.hasTag(at::Tag::nondeterministic_seeded) && draws(schema, call)) {
    refuse(call,
           "draws random numbers, which a model draws by dropout, dropout2d, locked_dropout and "
           "stochastic_depth only");
  }
  const bool by_data = operation.hasTag(at::Tag::data_dependent_output) ||
                       operation.hasTag(at::Tag::dynamic_output_shape) ||
                       (name == "where" && schema.arguments().size() == 1);
  if (by_data && shape_by_data(schema.name(), call, inputs))
    refuse(call, "has shapes that depend on the data; every tensor of a model has a shape of its own");
}

void check_results(const c10::FunctionSchema& schema, const AtenCall& call) {
  const auto is_tensor = [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::TensorType;
  };
  const std::vector<c10::Argument>& results = schema.returns();
  const bool list = results.size() == 1 && results[0].type()->isSubtypeOf(*c10::ListType::ofTensors());
  if (!list && (results.empty() || !std::ranges::all_of(results, is_tensor)))
    refuse(call, "returns no tensors");
  if (!list && results.size() != call.outputs.size()) {
    refuse(call, "returns " + std::to_string(results.size()) + " tensors, the call lists " +
                     std::to_string(call.outputs.size()) + " under outputs");
  }
}

}  // namespace

DType dtype_of(const AtenCall& call, std::span<const RowTensor> inputs, const TensorArgument& argument) {
  const auto index = static_cast<std::size_t>(argument.index);
  switch (argument.kind) {
    case TensorArgument::Kind::input: return inputs[index].type.dtype;
    case TensorArgument::Kind::parameter: return call.parameters[index].type.dtype;
    case TensorArgument::Kind::buffer: return call.buffers[index].type.dtype;
    case TensorArgument::Kind::constant: break;
  }
  return call.constants[index].type.dtype;
}

c10::OperatorHandle find_operation(const AtenCall& call, std::span<const RowTensor> inputs) {
  constexpr std::string_view kNamespace = "aten::";
  if (!call.target.starts_with(kNamespace)) refuse(call, "only operations of aten:: can be called");
  const std::size_t dot = call.target.find('.');
  std::string overload = dot == std::string::npos ? "" : call.target.substr(dot + 1);
  if (overload == "default") overload.clear();
  const auto found = c10::Dispatcher::singleton().findSchema({call.target.substr(0, dot), overload});
  if (!found) refuse(call, "LibTorch has no such operation; mind the overload, as in aten::add.Tensor");
  check_effects(*found, call, inputs);
  check_results(found->schema(), call);
  return *found;
}

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

namespace {

bool has_type(const at::Tensor& tensor, DType dtype) {
  return is_floating(dtype) ? tensor.is_floating_point() : tensor.scalar_type() == scalar_type(dtype);
}

std::string found_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  if (tensor.layout() != at::kStrided) return "a sparse tensor";
  return std::string(c10::toString(tensor.scalar_type())) + " " + pp::to_text(tensor.sizes().vec());
}

}  // namespace

Tensors tensors_of(torch::jit::Stack& stack) {
  Tensors tensors;
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
    } else {
      throw Error(ErrorKind::run, "returned what is no tensor");
    }
  }
  stack.clear();
  return tensors;
}

std::string to_text(const RowTensor& record) {
  std::string text = std::string(name_of(record.type.dtype)) + " [";
  const auto add = [&](const std::string& size) { text.append(text.back() == '[' ? "" : ", ").append(size); };
  const Shape& shape = record.type.shape;
  for (std::size_t d = 0; d <= shape.size(); ++d) {
    if (record.rows > 0 && d == static_cast<std::size_t>(record.batch_dim))
      add(record.rows == 1 ? "b" : std::to_string(record.rows) + " b");
    if (d < shape.size()) add(std::to_string(shape[d]));
  }
  return text + "]";
}

void check_outputs(std::span<const RowTensor> recorded, std::int64_t samples, TensorSpan found) {
  if (found.size() != recorded.size()) {
    throw Error(ErrorKind::run, "returned " + std::to_string(found.size()) +
                                    " tensors, the model has recorded " + std::to_string(recorded.size()));
  }
  for (std::size_t k = 0; k < found.size(); ++k) {
    const at::Tensor& tensor = found[k];
    const bool same = tensor.defined() && tensor.layout() == at::kStrided &&
                      tensor.sizes() == full_shape(recorded[k], samples) &&
                      has_type(tensor, recorded[k].type.dtype);
    if (same) continue;
    throw Error(ErrorKind::run, "output " + std::to_string(k) + " is " + found_text(tensor) + " for " +
                                    std::to_string(samples) + " samples, the model has recorded " +
                                    to_text(recorded[k]) + "; export the model again");
  }
}

}  // namespace pp::model::aten
