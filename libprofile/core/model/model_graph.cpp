#include "libprofile/core/model/model_graph.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/hash.h"
#include "libprofile/core/model/layer_resolve.h"
#include "libprofile/core/ops/op_table.h"

namespace pp {

std::string parameter_name(const ResolvedModel& model, int owner, std::size_t index) {
  const auto layer = static_cast<std::size_t>(owner);
  return detail::scoped_name(model.graph.layers[layer], model.layers[layer].parameters[index].name);
}

std::string buffer_name(const ResolvedModel& model, int layer, std::size_t index) {
  const auto at = static_cast<std::size_t>(layer);
  return detail::scoped_name(model.graph.layers[at], model.layers[at].buffers[index].name);
}

std::vector<BatchNorm> batch_norms(const ResolvedModel& model, int layer) {
  const auto at = static_cast<std::size_t>(layer);
  const Layer& spec = model.graph.layers[at];
  std::vector<BatchNorm> found;
  const auto add = [&](const Layer& norm, const RowTensor& output, int buffer) {
    const OpRow* row = find_op(norm.op);
    if (row == nullptr || !row->batch_statistics) return;
    const std::int64_t values = output.rows * element_count(output.type.shape) / output.type.shape.front();
    found.push_back({buffer, number(norm.attributes, "momentum"), number(norm.attributes, "eps"), values});
  };
  if (spec.op != kGraphOp) add(spec, {model.layers[at].outputs.front(), 1}, 0);
  for (std::size_t i = 0; i < model.layers[at].nodes.size(); ++i) {
    const ResolvedNode& node = model.layers[at].nodes[i];
    add(spec.nodes[i], node.outputs.front(), node.buffers.empty() ? 0 : node.buffers.front());
  }
  return found;
}

namespace {

enum class Which { all, trained };

Bytes bytes_of_own(const ResolvedModel& model, int layer, DType dtype, Which which) {
  const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(layer)];
  Bytes bytes;
  if (resolved.weights_layer != layer) return bytes;
  for (std::size_t i = 0; i < resolved.parameters.size(); ++i) {
    if (which == Which::trained && !resolved.trained[i]) continue;
    bytes += bytes_of({resolved.parameters[i].shape, dtype});
  }
  return bytes;
}

}  // namespace

Bytes parameter_bytes(const ResolvedModel& model, int layer, DType dtype) {
  return bytes_of_own(model, layer, dtype, Which::all);
}

Bytes trained_bytes(const ResolvedModel& model, int layer, DType dtype) {
  return bytes_of_own(model, layer, dtype, Which::trained);
}

std::int64_t parameter_count(const ResolvedModel& model) {
  std::int64_t count = 0;
  for (int layer = 0; layer < model.layer_count(); ++layer)
    count += parameter_bytes(model, layer, DType::uint8).value;
  return count;
}

std::string model_hash(const ModelGraph& graph) {
  if (graph.verified && graph.weights.empty()) return content_hash(dump_json_compact(to_json(graph)));
  ModelGraph same = graph;
  same.verified = true;
  same.weights.clear();
  return model_hash(same);
}

}  // namespace pp
