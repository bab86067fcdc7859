// The model as a value: layers in topological order, a DAG whose edges are tensors (document pp.model). Shapes
// are per sample, without the batch dimension. What an op means, its attributes, shapes and FLOPs: op_table.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/model/aten_call.h"
#include "libprofile/core/ops/attributes.h"
#include "libprofile/core/tensor_type.h"
#include "libprofile/core/units.h"

namespace pp {

/// A named tensor that the data provides.
struct DataTensor {
  std::string name;
  TensorType type;
  bool operator==(const DataTensor&) const = default;
};

/// Parameters that training leaves as they are (PyTorch's requires_grad=False): all of a layer, or the named
/// ones.
struct Frozen {
  bool all = false;
  std::vector<std::string> names = {};  ///< within the layer; empty when all are
  bool none() const { return !all && names.empty(); }
  bool operator==(const Frozen&) const = default;
};

struct Layer {
  std::string name;
  std::string op;
  std::vector<std::string> inputs;  ///< an earlier layer, `layer:1` for its second output, an input or a target
  Attributes attributes;
  std::string weights_of = {};  ///< the layer whose parameters this one shares; empty: its own
  /// Stands before the names of its parameters and buffers; none: the layer's name, "": nothing does.
  std::optional<std::string> scope = {};
  std::optional<AtenCall> call = {};      ///< of op `aten`
  std::vector<Layer> nodes = {};          ///< of op `graph`: what it runs, written like layers
  std::vector<std::string> outputs = {};  ///< of op `graph`: outputs of nodes
  Frozen frozen = {};  ///< of its own parameters; resolve() leaves it to the owner, and to nodes unless all are
  bool operator==(const Layer&) const = default;
};

struct LossSpec {
  std::string op;
  std::vector<std::string> inputs;  ///< prediction, target; of op `graph` any tensors
  Attributes attributes;
  std::vector<Layer> nodes = {};          ///< of op `graph`
  std::vector<std::string> outputs = {};  ///< of op `graph`: one, a scalar
  bool operator==(const LossSpec&) const = default;
};

struct ModelGraph {
  std::string name;
  std::vector<DataTensor> inputs;
  std::vector<DataTensor> targets;
  std::vector<Layer> layers;
  std::vector<std::string> outputs;
  std::optional<LossSpec> loss;
  /// False: imported without weights (import-torch --plan-only) and never compared with its module. Such a
  /// model is measured, estimated and planned, not trained.
  bool verified = true;
  /// The file of its weights, as an import named it: without them it is not the model that was imported. Empty:
  /// it was made without any.
  std::string weights = {};
  bool operator==(const ModelGraph&) const = default;
};

/// Where a layer's input tensor comes from.
struct TensorSource {
  enum class Kind { layer, input, target };
  Kind kind = Kind::layer;
  int index = 0;   ///< of the layer, model input or target
  int output = 0;  ///< which output of the layer
  bool operator==(const TensorSource&) const = default;
};

/// One node of a graph layer.
struct ResolvedNode {
  std::vector<TensorSource> sources;  ///< Kind::input: of the layer's inputs; Kind::layer: an earlier node
  std::vector<RowTensor> inputs;      ///< one per input
  std::vector<RowTensor> outputs;
  std::vector<int> parameters;  ///< indices of the layer's parameters; nodes of equal names share them
  std::vector<int> buffers;     ///< indices of the layer's buffers
  bool operator==(const ResolvedNode&) const = default;
};

/// What validation derives for one layer.
struct ResolvedLayer {
  std::vector<TensorSource> sources;  ///< one per input
  std::vector<TensorType> inputs;     ///< one per input
  std::vector<TensorType> outputs;
  std::vector<ParameterSpec> parameters;  ///< of the op, also when they belong to another layer
  std::vector<ParameterSpec> buffers;
  Flops forward_flops;              ///< per sample
  int weights_layer = -1;           ///< the layer whose parameters are used: itself, or the one of weights_of
  std::vector<int> consumers;       ///< layers that read an output of this one, ascending, each once
  std::vector<ResolvedNode> nodes;  ///< of a graph, as in the layer
  std::vector<TensorSource> graph_outputs;  ///< of a graph: which outputs of which nodes
  // What backward has to do, for the loss or, without one, the outputs:
  std::vector<bool> frozen;   ///< per parameter
  std::vector<bool> trained;  ///< per parameter: not frozen, and a gradient reaches it here or in a sharer
  std::vector<bool> input_gradient;  ///< per input: its gradient flows on to something that is trained
  bool backward = false;             ///< either of both is computed here
  bool operator==(const ResolvedLayer&) const = default;
};

/// A checked model: the graph with defaults filled in, and per layer what follows from it.
struct ResolvedModel {
  ModelGraph graph;
  std::vector<ResolvedLayer> layers;
  std::vector<TensorSource> outputs;
  std::vector<TensorSource> loss_sources;  ///< empty without a loss
  ResolvedLayer loss;                      ///< with inputs, FLOPs, and nodes of a graph
  int layer_count() const { return static_cast<int>(graph.layers.size()); }
};

/// Checks names, edges, order, attributes and shapes, and derives the rest. Throws pp::Error (data) that names
/// the JSON pointer (`/layers/3/inputs/0`), what was found and what is allowed. `pointer`: where the model
/// stands in the file, when another document embeds it. O(layers + edges), times the logarithm of the number of
/// names.
ResolvedModel resolve(ModelGraph graph, std::string_view pointer = {});

/// The model-wide name, for files, messages and what is drawn from it: `conv1.weight`, the layer's scope and
/// the name within the layer. `owner`: the layer that owns the parameter.
std::string parameter_name(const ResolvedModel& model, int owner, std::size_t index);
std::string buffer_name(const ResolvedModel& model, int layer, std::size_t index);

/// A batch norm: the layer itself, or a node of its graph.
struct BatchNorm {
  int buffer = 0;  ///< of the layer: its running mean; the running variance follows
  double momentum = 0, eps = 0;
  std::int64_t values = 0;  ///< per channel and sample
};
std::vector<BatchNorm> batch_norms(const ResolvedModel& model, int layer);

Bytes parameter_bytes(const ResolvedModel& model, int layer,
                      DType dtype);  ///< 0 when the layer uses another's weights
/// The part of it that is trained.
Bytes trained_bytes(const ResolvedModel& model, int layer, DType dtype);
std::int64_t parameter_count(const ResolvedModel& model);

/// Reads and checks: resolve() has accepted the result, its attributes are complete. `pointer` as for
/// resolve().
ModelGraph model_from_json(const Json& json, std::string_view pointer = {});
/// Complete: attributes that the graph leaves to their defaults are written, but for those that are younger
/// than documents without them (ignore_index).
Json to_json(const ModelGraph& graph);
ModelGraph parse_model(std::string_view text);
/// The hash of the complete document in compact form: leaving out a default does not change it, nor do
/// `verified` and `weights`, so that a plan made without weights holds once they are there.
std::string model_hash(const ModelGraph& graph);

}  // namespace pp
