// The model as a value: layers in topological order, a DAG whose edges are tensors (document pp.model). Shapes
// are per sample, without the batch dimension. What an op means, its attributes, shapes and FLOPs: op_table.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/units.h"

namespace pp {

enum class DType { float32, float64, bfloat16, int64, uint8 };
template <>
struct EnumNames<DType> {
  static constexpr std::array table{std::pair{DType::float32, "float32"sv},
                                    std::pair{DType::float64, "float64"sv},
                                    std::pair{DType::bfloat16, "bfloat16"sv},
                                    std::pair{DType::int64, "int64"sv}, std::pair{DType::uint8, "uint8"sv}};
};
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::int64: return 8;
    case DType::float32: return 4;
    case DType::bfloat16: return 2;
    case DType::uint8: return 1;
  }
  return 0;
}
constexpr bool is_floating(DType dtype) { return dtype != DType::int64 && dtype != DType::uint8; }

using Shape = std::vector<std::int64_t>;

struct TensorType {
  Shape shape;
  DType dtype = DType::float32;
  bool operator==(const TensorType&) const = default;
};
std::int64_t element_count(const Shape& shape);
Bytes bytes_of(const TensorType& type);
/// `[1, 28, 28]`
std::string to_text(const Shape& shape);

/// A named tensor that the data provides.
struct DataTensor {
  std::string name;
  TensorType type;
  bool operator==(const DataTensor&) const = default;
};

using Attribute = std::variant<bool, std::int64_t, double, std::string>;
/// Complete after validation: every attribute of the op, defaults filled in.
using Attributes = std::map<std::string, Attribute, std::less<>>;

struct Layer {
  std::string name;
  std::string op;
  std::vector<std::string> inputs;  ///< an earlier layer, `layer:1` for its second output, an input or a target
  Attributes attributes;
  std::string weights_of;  ///< the layer whose parameters this one shares; empty: its own
  bool operator==(const Layer&) const = default;
};

struct LossSpec {
  std::string op;
  std::vector<std::string> inputs;  ///< prediction, target
  Attributes attributes;
  bool operator==(const LossSpec&) const = default;
};

struct ModelGraph {
  std::string name;
  std::vector<DataTensor> inputs;
  std::vector<DataTensor> targets;
  std::vector<Layer> layers;
  std::vector<std::string> outputs;
  std::optional<LossSpec> loss;
  bool operator==(const ModelGraph&) const = default;
};

struct ParameterSpec {
  std::string name;  ///< within the layer: `weight`; the model-wide name is `layer.weight`
  Shape shape;
  bool operator==(const ParameterSpec&) const = default;
};

/// Where a layer's input tensor comes from.
struct TensorSource {
  enum class Kind { layer, input, target };
  Kind kind = Kind::layer;
  int index = 0;   ///< of the layer, model input or target
  int output = 0;  ///< which output of the layer
  bool operator==(const TensorSource&) const = default;
};

/// What validation derives for one layer.
struct ResolvedLayer {
  std::vector<TensorSource> sources;  ///< one per input
  std::vector<TensorType> inputs;     ///< one per input
  std::vector<TensorType> outputs;
  std::vector<ParameterSpec> parameters;  ///< of the op, also when they belong to another layer
  std::vector<ParameterSpec> buffers;
  Flops forward_flops;         ///< per sample
  int weights_layer = -1;      ///< the layer whose parameters are used: itself, or the one of weights_of
  std::vector<int> consumers;  ///< layers that read an output of this one, ascending, each once
  bool operator==(const ResolvedLayer&) const = default;
};

/// A checked model: the graph with defaults filled in, and per layer what follows from it.
struct ResolvedModel {
  ModelGraph graph;
  std::vector<ResolvedLayer> layers;
  std::vector<TensorSource> outputs;
  std::vector<TensorSource> loss_sources;  ///< empty without a loss
  int layer_count() const { return static_cast<int>(graph.layers.size()); }
};

/// Checks names, edges, order, attributes and shapes, and derives the rest. Throws pp::Error (data) that names
/// the JSON pointer (`/layers/3/inputs/0`), what was found and what is allowed. `pointer`: where the model
/// stands in the file, when another document embeds it. O(layers + edges), times the logarithm of the number of
/// names.
ResolvedModel resolve(ModelGraph graph, std::string_view pointer = {});

Bytes parameter_bytes(const ResolvedModel& model, int layer,
                      DType dtype);  ///< 0 when the layer uses another's weights
std::int64_t parameter_count(const ResolvedModel& model);

/// Reads and checks: resolve() has accepted the result, its attributes are complete. `pointer` as for
/// resolve().
ModelGraph model_from_json(const Json& json, std::string_view pointer = {});
/// Complete: attributes that the graph leaves to their defaults are written.
Json to_json(const ModelGraph& graph);
ModelGraph parse_model(std::string_view text);
/// Of the complete document in compact form: leaving out a default does not change it.
std::string model_hash(const ModelGraph& graph);

}  // namespace pp
