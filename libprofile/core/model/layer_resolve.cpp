#include "libprofile/core/model/layer_resolve.h"

#include <algorithm>
#include <limits>
#include <map>
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
  OpResult result = with_context(context, [&] { return row.result(attributes, inputs); });
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

namespace {

class GraphResolver {
 public:
  GraphResolver(GraphParts graph, const std::string& pointer, ResolvedLayer& resolved)
      : graph_(graph), pointer_(pointer), resolved_(resolved), used_(graph.nodes.size()) {
    for (std::size_t k = 0; k < graph_.inputs.size(); ++k)
      inputs_.emplace(graph_.inputs[k], static_cast<int>(k));
    input_used_.resize(graph_.inputs.size());
    for (const auto& [words, k] : inputs_) input_parts_.emplace(NameTable::name_part(words), k);
  }

  void run(std::int64_t rows) {
    if (graph_.nodes.empty()) fail_at(pointer_ + "/nodes", "is empty; a graph has at least one node");
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) add_node(i);
    if (graph_.outputs.empty()) fail_at(pointer_ + "/outputs", "is empty; name the nodes whose outputs leave");
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) add_output(i, rows);
    refuse_unused();
  }

 private:
  std::string at(std::string_view list, std::size_t i) const {
    return append_pointer(append_pointer(pointer_, list), std::to_string(i));
  }

  void add_node(std::size_t i) {
    Layer& node = graph_.nodes[i];
    const std::string pointer = at("nodes", i);
    declare(node, static_cast<int>(i), pointer);
    check_scope(node, pointer);
    if (node.op == kGraphOp) fail_at(pointer + "/op", "a graph has no graphs; write its nodes into this one");
    ResolvedNode resolved;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const auto [source, type] =
          look_up(node.inputs[k], i, append_pointer(pointer + "/inputs", std::to_string(k)));
      resolved.sources.push_back(source);
      resolved.inputs.push_back(type);
    }
    OperationResult result = resolve_operation(node, resolved.inputs, pointer);
    resolved.outputs = std::move(result.outputs);
    const std::string scope = node.scope.value_or(node.name);
    const bool running = node.op != kAtenOp;  // statistics of two layers cannot be told apart
    add_specs(result.parameters, scope, true, pointer, resolved_.parameters, resolved.parameters);
    add_specs(result.buffers, scope, !running, pointer, resolved_.buffers, resolved.buffers);
    resolved_.forward_flops += result.forward_flops;
    resolved_.nodes.push_back(std::move(resolved));
  }

  void declare(const Layer& node, int index, const std::string& pointer) {
    if (!is_name(node.name))
      fail_at(pointer + "/name", in_quotes(node.name) + " is not a name; use letters, digits and _ . - /");
    if (input_parts_.contains(node.name)) {
      fail_at(pointer + "/name",
              in_quotes(node.name) + " is the name of an input of the layer; rename the node");
    }
    if (!nodes_.emplace(node.name, index).second)
      fail_at(pointer + "/name", "duplicate name " + in_quotes(node.name) + "; rename one of the nodes");
  }

  /// An input of the layer by its words, or the output of a node before `reader`.
  std::pair<TensorSource, RowTensor> look_up(const std::string& words, std::size_t reader,
                                             const std::string& pointer) {
    if (const auto input = inputs_.find(words); input != inputs_.end()) {
      const auto k = static_cast<std::size_t>(input->second);
      input_used_[k] = true;
      return {{TensorSource::Kind::input, input->second, 0}, {resolved_.inputs[k], 1}};
    }
    const auto found = nodes_.find(NameTable::name_part(words));
    if (found == nodes_.end() || static_cast<std::size_t>(found->second) >= reader) {
      fail_at(pointer, in_quotes(words) + " is no earlier node and no input of the layer; nodes stand behind " +
                           "those that they read");
    }
    const auto index = static_cast<std::size_t>(found->second);
    const std::vector<RowTensor>& outputs = resolved_.nodes[index].outputs;
    const int output = NameTable::output_number(words, outputs.size(), pointer);
    used_[index] = true;
    return {{TensorSource::Kind::layer, found->second, output}, outputs[static_cast<std::size_t>(output)]};
  }

  /// Nodes with equal names share the tensor: a module that is called twice.
  void add_specs(const std::vector<ParameterSpec>& specs, const std::string& scope, bool sharing,
                 const std::string& pointer, std::vector<ParameterSpec>& all, std::vector<int>& indices) {
    for (ParameterSpec spec : specs) {
      if (!scope.empty()) spec.name.insert(0, scope + ".");
      const auto known = std::ranges::find(all, spec.name, &ParameterSpec::name);
      if (known == all.end()) {
        indices.push_back(static_cast<int>(all.size()));
        all.push_back(std::move(spec));
        continue;
      }
      if (!sharing || *known != spec) {
        fail_at(pointer + "/name", in_quotes(spec.name) + " belongs to an earlier node already" +
                                       (sharing ? ", with the shape " + to_text(known->shape) : "") +
                                       "; rename the node or give it a scope");
      }
      indices.push_back(static_cast<int>(known - all.begin()));
    }
  }

  void add_output(std::size_t i, std::int64_t rows) {
    const std::string pointer = at("outputs", i);
    const auto [source, type] = look_up(graph_.outputs[i], graph_.nodes.size(), pointer);
    const std::string words = in_quotes(graph_.outputs[i]);
    if (source.kind != TensorSource::Kind::layer)
      fail_at(pointer, words + " is no node; name outputs of nodes");
    if (std::ranges::find(resolved_.graph_outputs, source) != resolved_.graph_outputs.end())
      fail_at(pointer, words + " leaves the graph already");
    if (type.rows != rows) {
      fail_at(pointer, words + " has " + std::to_string(type.rows) + " rows a sample, what leaves here has " +
                           std::to_string(rows) + "; end with a view");
    }
    if (type.batch_dim != 0) {
      fail_at(pointer, words + " has its batch in dimension " + std::to_string(type.batch_dim) +
                           ", what leaves here has it in front; end with a transpose");
    }
    resolved_.graph_outputs.push_back(source);
    resolved_.outputs.push_back(type.type);
  }

  void refuse_unused() const {
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (!used_[i]) {
        fail_at(at("nodes", i), "nothing uses the output of " + in_quotes(graph_.nodes[i].name) +
                                    "; remove the node, or add it to " + pointer_ + "/outputs");
      }
    }
    for (std::size_t k = 0; k < input_used_.size(); ++k) {
      if (!input_used_[k])
        fail_at(at("inputs", k), "no node reads " + in_quotes(graph_.inputs[k]) + "; remove this input");
    }
  }

  GraphParts graph_;
  const std::string& pointer_;
  ResolvedLayer& resolved_;
  std::vector<bool> used_, input_used_;
  std::map<std::string, int, std::less<>> inputs_, input_parts_, nodes_;
};

}  // namespace

void resolve_graph(GraphParts graph, std::int64_t rows, const std::string& pointer, ResolvedLayer& resolved) {
  resolved.forward_flops = Flops();
  GraphResolver(graph, pointer, resolved).run(rows);
}

}  // namespace pp::detail
