#include "libprofile/core/model/layer_resolve.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "libprofile/core/model/model_names.h"

namespace pp::detail {
namespace {

/// Named operations work on samples, or on as many rows of each sample.
std::int64_t common_rows(const Layer& layer, std::span<const RowTensor> inputs, const std::string& pointer) {
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const std::string place = append_pointer(pointer + "/inputs", std::to_string(k));
    if (inputs[k].rows == 0)
      fail_at(place, in_quotes(layer.inputs[k]) + " has no batch, but " + layer.op + " works on samples");
    if (inputs[k].batch_dim != 0) {
      fail_at(place, in_quotes(layer.inputs[k]) + " has its batch in dimension " +
                         std::to_string(inputs[k].batch_dim) + ", " + layer.op + " needs it in front");
    }
    if (inputs[k].rows != inputs[0].rows) {
      fail_at(place, in_quotes(layer.inputs[k]) + " has " + std::to_string(inputs[k].rows) +
                         " rows a sample, input 0 has " + std::to_string(inputs[0].rows) + "; " + layer.op +
                         " needs as many of all");
    }
  }
  return inputs.empty() ? 1 : inputs[0].rows;
}

OperationResult with_rows(OpResult result, std::int64_t rows) {
  OperationResult all{{}, std::move(result.parameters), std::move(result.buffers), {}};
  for (TensorType& output : result.outputs) all.outputs.push_back({std::move(output), rows});
  all.forward_flops = Flops(result.forward_flops.value * static_cast<double>(rows));
  return all;
}

}  // namespace

std::string op_names(const std::vector<OpRow>& table) {
  std::string names;
  for (const OpRow& row : table) names.append(names.empty() ? "" : ", ").append(row.name);
  return names;
}

void check_input_count(const OpRow& row, std::size_t count, const std::string& pointer) {
  const auto n = static_cast<std::int64_t>(count);
  if (n >= row.min_inputs && n <= row.max_inputs) return;
  std::string needed = std::to_string(row.min_inputs);
  if (row.max_inputs == std::numeric_limits<int>::max()) {
    needed.insert(0, "at least ");
  } else if (row.max_inputs > row.min_inputs) {
    needed.append(" to ").append(std::to_string(row.max_inputs));
  }
  fail_at(pointer, "has " + std::to_string(n) + (n == 1 ? " entry; " : " entries; ") + std::string(row.name) +
                       " needs " + needed);
}

OpResult infer(const OpRow& row, const Attributes& attributes, std::span<const TensorType> inputs,
               const std::string& context) {
  OpResult result = with_context(context, [&] { return row.infer(attributes, inputs); });
  const auto check = [&](const std::string& name, const Shape& shape) {
    if (too_large(shape))
      fail_at(context, name + " " + to_text(shape) + " has more than 2^40 elements; use smaller sizes");
  };
  for (const TensorType& output : result.outputs) check("output", output.shape);
  for (const ParameterSpec& parameter : result.parameters) check(parameter.name, parameter.shape);
  return result;
}

void check_scope(Layer& layer, const std::string& pointer) {
  if (!layer.scope || layer.scope->empty()) return;
  if (!is_dotted_name(*layer.scope)) {
    fail_at(
        pointer + "/scope",
        in_quotes(*layer.scope) + " is no module's path; use letters, digits, _ - and . between them, or \"\"");
  }
  if (*layer.scope == layer.name) layer.scope.reset();
}

std::string scoped_name(const Layer& layer, const std::string& name) {
  const std::string& scope = layer.scope ? *layer.scope : layer.name;
  return scope.empty() ? name : scope + "." + name;
}

OperationResult resolve_operation(Layer& layer, std::span<const RowTensor> inputs, const std::string& pointer) {
  if (layer.op == kAtenOp) {
    if (!layer.call) fail_at(pointer + "/call", "missing; op aten needs it");
    return resolve_call(*layer.call, inputs.size(), pointer + "/call");
  }
  const OpRow* row = find_op(layer.op);
  if (row == nullptr) {
    fail_at(pointer + "/op", "unknown operation " + in_quotes(layer.op) + "; use one of " +
                                 op_names(op_table()) + ", " + std::string(kAtenOp) + ", " +
                                 std::string(kGraphOp));
  }
  layer.attributes = complete_attributes(*row, layer.attributes, pointer + "/attributes");
  check_input_count(*row, inputs.size(), pointer + "/inputs");
  const std::int64_t rows = common_rows(layer, inputs, pointer);
  std::vector<TensorType> types;
  for (const RowTensor& input : inputs) types.push_back(input.type);
  return with_rows(
      infer(*row, layer.attributes, types, pointer + ": " + layer.op + " " + in_quotes(layer.name)), rows);
}

OperationResult resolve_call(const AtenCall& call, std::size_t inputs, const std::string& pointer) {
  if (call.outputs.empty()) fail_at(pointer + "/outputs", "is empty; a call has at least one output");
  std::vector<bool> used(inputs + call.parameters.size() + call.buffers.size() + call.constants.size(), false);
  const auto number = [&](const TensorArgument& tensor) {
    std::size_t first = 0;
    if (tensor.kind >= TensorArgument::Kind::parameter) first += inputs;
    if (tensor.kind >= TensorArgument::Kind::buffer) first += call.parameters.size();
    if (tensor.kind >= TensorArgument::Kind::constant) first += call.buffers.size();
    return first + static_cast<std::size_t>(tensor.index);
  };
  for (const auto& [name, argument] : call.arguments) {
    for_each_tensor(argument, [&, &name = name](const TensorArgument& tensor) {
      if (tensor.kind == TensorArgument::Kind::input && static_cast<std::size_t>(tensor.index) >= inputs) {
        fail_at(
            append_pointer(pointer + "/arguments", name),
            "there is no input " + std::to_string(tensor.index) + ", the call has " + std::to_string(inputs));
      }
      used[number(tensor)] = true;
    });
  }
  const auto require_used = [&](TensorArgument tensor, const std::string& what) {
    if (!used[number(tensor)]) fail_at(pointer + "/arguments", what + " is not used; remove it");
  };
  using Kind = TensorArgument::Kind;
  OperationResult result{call.outputs, {}, {}, Flops(call.flops)};
  for (std::size_t k = 0; k < inputs; ++k)
    require_used({Kind::input, static_cast<int>(k)}, "input " + std::to_string(k));
  for (const NamedTensorType& tensor : call.parameters) {
    require_used({Kind::parameter, static_cast<int>(result.parameters.size())},
                 "parameter " + in_quotes(tensor.name));
    result.parameters.push_back({tensor.name, tensor.type.shape});
  }
  for (const NamedTensorType& tensor : call.buffers) {
    require_used({Kind::buffer, static_cast<int>(result.buffers.size())}, "buffer " + in_quotes(tensor.name));
    result.buffers.push_back({tensor.name, tensor.type.shape, tensor.type.dtype});
  }
  for (std::size_t k = 0; k < call.constants.size(); ++k)
    require_used({Kind::constant, static_cast<int>(k)}, "constant " + in_quotes(call.constants[k].name));
  return result;
}

}  // namespace pp::detail
