// What one layer is made of: an operation of the table, a call of LibTorch, or a small graph of both.
// Private to resolve().
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::detail {

/// `add, ..., tanh, aten, graph`
std::string op_names(const std::vector<OpRow>& table);
/// Throws unless the op takes this many inputs.
void check_input_count(const OpRow& row, std::size_t count, const std::string& pointer);
/// `context`: pointer, op and layer, put before what the op says.
OpResult infer(const OpRow& row, const Attributes& attributes, std::span<const TensorType> inputs,
               const std::string& context);
/// Throws for a scope that is none; one that says what is said without it becomes none.
void check_scope(Layer& layer, const std::string& pointer);

/// The model-wide name of what `layer` calls `name`.
std::string scoped_name(const Layer& layer, const std::string& name);

/// What an operation makes of its inputs.
struct OperationResult {
  std::vector<RowTensor> outputs;
  std::vector<ParameterSpec> parameters;
  std::vector<ParameterSpec> buffers;
  Flops forward_flops;  ///< per sample
};
/// Of a layer or node that is no graph; completes its attributes. `pointer` is the layer's. Throws pp::Error
/// (data).
OperationResult resolve_operation(Layer& layer, std::span<const RowTensor> inputs, const std::string& pointer);
/// Of op aten: what the call says, checked against the number of inputs.
OperationResult resolve_call(const AtenCall& call, std::size_t inputs, const std::string& pointer);

/// A graph: its nodes in order, then what it hands out.
struct GraphParts {
  std::vector<Layer>& nodes;
  const std::vector<std::string>& inputs;
  const std::vector<std::string>& outputs;
};
/// Fills nodes, outputs, parameters, buffers and FLOPs of `resolved`, whose inputs are there. Outputs of the
/// graph have `rows` rows a sample (RowTensor).
void resolve_graph(GraphParts graph, std::int64_t rows, const std::string& pointer, ResolvedLayer& resolved);

}  // namespace pp::detail
