#include "libprofile/core/model_graph.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "libprofile/core/hash.h"

namespace pp {

std::int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Bytes bytes_of(const TensorType& type) { return Bytes(element_count(type.shape) * size_of(type.dtype)); }

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text.append(text.size() == 1 ? "" : ", ").append(std::to_string(size));
  return text + "]";
}

Bytes parameter_bytes(const ResolvedModel& model, int layer, DType dtype) {
  const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(layer)];
  Bytes bytes;
  if (resolved.weights_layer != layer) return bytes;
  for (const ParameterSpec& parameter : resolved.parameters) bytes += bytes_of({parameter.shape, dtype});
  return bytes;
}

std::int64_t parameter_count(const ResolvedModel& model) {
  std::int64_t count = 0;
  for (int layer = 0; layer < model.layer_count(); ++layer)
    count += parameter_bytes(model, layer, DType::uint8).value;
  return count;
}

std::string model_hash(const ModelGraph& graph) { return content_hash(dump_json_compact(to_json(graph))); }

}  // namespace pp
