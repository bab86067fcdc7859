// The keys of pp.model.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

constexpr std::string_view kModelFormat = "pp.model";
constexpr IntegerRange kVersions{1, 2};

DataTensor read_tensor(ObjectReader& reader) {
  DataTensor tensor;
  tensor.name = reader.text("name");
  if (reader.has("dtype")) tensor.type.dtype = reader.enumerator<DType>("dtype");
  tensor.type.shape = reader.integers("shape", {.min = 1});
  return tensor;
}

Attribute read_integers(const Json& json, const std::string& pointer) {
  std::vector<std::int64_t> values;
  for (const Json& element : json) {
    const bool fits = !(element.is_number_unsigned() && element.get<std::int64_t>() < 0);
    if (!element.is_number_integer() || !fits || values.size() == kMostListed) {
      throw Error(ErrorKind::data, append_pointer(pointer, std::to_string(values.size())) +
                                       ": must be one of at most " + std::to_string(kMostListed) +
                                       " integers below 2^63");
    }
    values.push_back(element.get<std::int64_t>());
  }
  return values;
}

Attribute read_attribute(const Json& json, const std::string& pointer) {
  if (json.is_boolean()) return json.get<bool>();
  const bool fits = !(json.is_number_unsigned() && json.get<std::int64_t>() < 0);
  if (json.is_number_integer() && fits) return json.get<std::int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) return read_integers(json, pointer);
  throw Error(ErrorKind::data,
              pointer + ": must be true, false, a number below 2^63, a string or a list of integers");
}

Attributes read_attributes(ObjectReader& reader) {
  Attributes attributes;
  reader.members("attributes", [&](const std::string& name, const Json& value, const std::string& pointer) {
    attributes.emplace(name, read_attribute(value, pointer));
  });
  return attributes;
}

Frozen read_frozen(ObjectReader& reader) {
  const Json& json = reader.raw("frozen");
  if (json.is_boolean()) return {.all = json.get<bool>()};
  if (!json.is_array()) reader.fail("frozen", "must be true, or a list of names of the layer's parameters");
  return {.names = reader.texts("frozen")};
}

enum class Place { model, graph };

Layer read_layer(ObjectReader& reader, Place place);

/// The nodes and outputs of op `graph`.
template <class Graph>
void read_nodes(ObjectReader& reader, Graph& graph) {
  reader.objects("nodes", [&](ObjectReader& member) {
    if (graph.nodes.size() == kMostNodes)
      reader.fail("nodes", "has more than " + std::to_string(kMostNodes) + " entries; make several layers");
    graph.nodes.push_back(read_layer(member, Place::graph));
  });
  graph.outputs = reader.texts("outputs");
}

Layer read_layer(ObjectReader& reader, Place place) {
  Layer layer;
  layer.name = reader.text("name");
  layer.op = reader.text("op");
  layer.inputs = reader.texts("inputs");
  if (reader.has("scope")) layer.scope = reader.text("scope");
  if (layer.op == kAtenOp) {
    reader.object("call", [&](ObjectReader& member) { layer.call = read_aten_call(member); });
  } else if (layer.op == kGraphOp && place == Place::model) {
    read_nodes(reader, layer);
  } else if (reader.has("attributes")) {
    layer.attributes = read_attributes(reader);
  }
  if (place == Place::model && reader.has("weights_of")) layer.weights_of = reader.text("weights_of");
  if (reader.has("frozen")) layer.frozen = read_frozen(reader);
  return layer;
}

LossSpec read_loss(ObjectReader& reader) {
  LossSpec loss;
  loss.op = reader.text("op");
  loss.inputs = reader.texts("inputs");
  if (loss.op == kGraphOp) {
    read_nodes(reader, loss);
  } else if (reader.has("attributes")) {
    loss.attributes = read_attributes(reader);
  }
  return loss;
}

ModelGraph read_graph(ObjectReader& reader) {
  ModelGraph graph;
  graph.name = reader.text("name");
  if (reader.has("verified")) graph.verified = reader.boolean("verified");
  if (reader.has("weights")) graph.weights = reader.text("weights");
  reader.objects("inputs", [&](ObjectReader& member) { graph.inputs.push_back(read_tensor(member)); });
  if (reader.has("targets")) {
    reader.objects("targets", [&](ObjectReader& member) { graph.targets.push_back(read_tensor(member)); });
  }
  reader.objects("layers",
                 [&](ObjectReader& member) { graph.layers.push_back(read_layer(member, Place::model)); });
  graph.outputs = reader.texts("outputs");
  if (reader.has("loss")) {
    reader.object("loss", [&](ObjectReader& member) { graph.loss = read_loss(member); });
  }
  return graph;
}

Json tensors_json(const std::vector<DataTensor>& tensors) {
  Json list = Json::array();
  for (const DataTensor& tensor : tensors) {
    list.push_back(
        {{"name", tensor.name}, {"dtype", name_of(tensor.type.dtype)}, {"shape", tensor.type.shape}});
  }
  return list;
}

/// Adds `attributes` in the order of the op table, defaults included but for silent ones. The graph may not be
/// checked yet: what the table does not know is written as it is.
void add_attributes(Json& json, const OpRow* row, const Attributes& given) {
  Json list = Json::object();
  const Attributes attributes = row == nullptr ? given : complete_attributes(*row, given, "/attributes");
  const auto add = [&](std::string_view name) {
    std::visit([&](const auto& value) { list[std::string(name)] = value; }, attributes.find(name)->second);
  };
  if (row == nullptr) {
    for (const auto& [name, value] : attributes) add(name);
  } else {
    for (const AttributeSpec& spec : row->attributes) {
      if (!spec.silent || attributes.find(spec.name)->second != spec.default_value) add(spec.name);
    }
  }
  if (!list.empty()) json["attributes"] = std::move(list);
}

Json layer_json(const Layer& layer);

template <class Graph>
void add_nodes(Json& json, const Graph& graph) {
  if (graph.op != kGraphOp) return;
  json["nodes"] = Json::array();
  for (const Layer& node : graph.nodes) json["nodes"].push_back(layer_json(node));
  json["outputs"] = graph.outputs;
}

Json layer_json(const Layer& layer) {
  Json json{{"name", layer.name}, {"op", layer.op}, {"inputs", layer.inputs}};
  if (layer.scope && *layer.scope != layer.name) json["scope"] = *layer.scope;
  with_context("layer \"" + layer.name + "\"", [&] {
    add_attributes(json, find_op(layer.op), layer.attributes);
    add_nodes(json, layer);
  });
  if (layer.call) json["call"] = to_json(*layer.call);
  if (!layer.weights_of.empty()) json["weights_of"] = layer.weights_of;
  if (layer.frozen.all) json["frozen"] = true;
  if (!layer.frozen.names.empty()) json["frozen"] = layer.frozen.names;
  return json;
}

/// Version 2 has what version 1 did not begin with: frozen parameters, calls in float32, constants by formula,
/// models that nobody compared with their module, or that have a file of weights.
bool is_of_version_2(const Layer& layer) {
  const auto by_formula = [](const AtenConstant& constant) {
    return std::holds_alternative<ConstantFormula>(constant.values);
  };
  return !layer.frozen.none() || std::ranges::any_of(layer.nodes, is_of_version_2) ||
         (layer.call && (layer.call->precise || std::ranges::any_of(layer.call->constants, by_formula)));
}

/// The lowest that says it, so that older programs read what they can.
int version_of(const ModelGraph& graph) {
  const bool second = !graph.verified || !graph.weights.empty() ||
                      std::ranges::any_of(graph.layers, is_of_version_2) ||
                      (graph.loss && std::ranges::any_of(graph.loss->nodes, is_of_version_2));
  return second ? 2 : 1;
}

}  // namespace

ModelGraph model_from_json(const Json& json, std::string_view pointer) {
  ModelGraph graph;
  read_document(
      json, kModelFormat, kVersions, [&](ObjectReader& reader) { graph = read_graph(reader); },
      std::string(pointer));
  return resolve(std::move(graph), pointer).graph;
}

Json to_json(const ModelGraph& graph) {
  Json json{{"format", kModelFormat}, {"version", version_of(graph)}, {"name", graph.name}};
  if (!graph.verified) json["verified"] = false;
  if (!graph.weights.empty()) json["weights"] = graph.weights;
  json["inputs"] = tensors_json(graph.inputs);
  json["targets"] = tensors_json(graph.targets);
  json["layers"] = Json::array();
  for (const Layer& layer : graph.layers) json["layers"].push_back(layer_json(layer));
  json["outputs"] = graph.outputs;
  if (graph.loss) {
    Json loss{{"op", graph.loss->op}, {"inputs", graph.loss->inputs}};
    add_attributes(loss, find_loss(graph.loss->op), graph.loss->attributes);
    add_nodes(loss, *graph.loss);
    json["loss"] = std::move(loss);
  }
  return json;
}

ModelGraph parse_model(std::string_view text) { return model_from_json(parse_json(text)); }

}  // namespace pp
