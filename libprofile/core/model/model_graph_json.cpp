// The keys of pp.model.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/json_fields.h"
#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/schema/document_schema.h"

namespace pp {
namespace {

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

/// In the order of the op table, defaults included but for silent ones. The graph may not be checked yet: what
/// the table does not know is written as it is.
Json attributes_json(const OpRow* row, const Attributes& given) {
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
  return list;
}

Json attributes_json(const Layer& layer) {
  Json json;
  with_context("layer \"" + layer.name + "\"",
               [&] { json = attributes_json(find_op(layer.op), layer.attributes); });
  return json;
}
Json attributes_json(const LossSpec& loss) { return attributes_json(find_loss(loss.op), loss.attributes); }

template <class Of>
constexpr ValueType kAttributesType{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          for (const auto& [name, value] : detail::object_at(json, pointer).items())
            static_cast<Of*>(to)->attributes.emplace(name,
                                                     read_attribute(value, append_pointer(pointer, name)));
        },
    .write = [](const Field&, const void* from) { return attributes_json(*static_cast<const Of*>(from)); },
    .schema = [](const Field&) { return Json::object(); }};  // the op says it

const ValueType kFrozenType{
    .read =
        [](const Field& field, const Json& json, const std::string& pointer, void* to) {
          auto& frozen = *static_cast<Frozen*>(to);
          if (json.is_boolean()) {
            frozen.all = json.get<bool>();
          } else if (json.is_array()) {
            detail::read_value<std::vector<std::string>>(field, json, pointer, &frozen.names);
          } else {
            detail::fail_at(pointer, "must be true, or a list of names of the layer's parameters");
          }
        },
    .write =
        [](const Field&, const void* from) {
          const auto& frozen = *static_cast<const Frozen*>(from);
          return frozen.all ? Json(true) : Json(frozen.names);
        },
    .schema = [](const Field&) -> Json {
      return {{"$ref", "#/definitions/frozen"}};
    }};

const ValueType kCallType{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          ObjectReader reader(json, pointer);
          *static_cast<AtenCall*>(to) = read_aten_call(reader);
          reader.finish();
        },
    .write = [](const Field&, const void* from) { return to_json(*static_cast<const AtenCall*>(from)); },
    .schema = [](const Field&) -> Json {
      return {{"$ref", "#/definitions/call"}};
    },
    .expected = [](const Field&) { return std::string("an object"); }};

/// Flags are no type of data.
const ValueType kDataType{detail::read_value<DType>, detail::write_value<DType>, [](const Field&) {
                            std::vector<std::string> names = all_names<DType>();
                            std::erase(names, name_of(DType::boolean));
                            return detail::names_schema(names);
                          }};

template <class Of>
bool is_call(const Of& of) {
  return of.op == kAtenOp;
}
template <class Of>
bool is_graph(const Of& of) {
  return of.op == kGraphOp;
}
template <class Of>
bool has_attributes(const Of& of) {
  return !is_call(of) && !is_graph(of);
}
bool has_own_scope(const Layer& layer) { return layer.scope != layer.name; }
template <class Of>
bool writes_attributes(const Of& of) {
  return !attributes_json(of).empty();
}

template <class Of>
constexpr auto attributes_key() {
  auto made = whole<Of>("attributes", kAttributesType<Of>).template given<has_attributes<Of>>();
  return made.template written_if<writes_attributes<Of>>();
}

template <class Of>
void check_nodes(Of& of, ObjectReader& reader) {
  if (of.nodes.size() > kMostNodes)
    reader.fail("nodes", "has more than " + std::to_string(kMostNodes) + " entries; make several layers");
}

constexpr Object kDataTensor{
    "data_tensor",
    key<&DataTensor::name>("name"),
    defaulted<&DataTensor::type, &TensorType::dtype>("dtype", kDataType),
    key<&DataTensor::type, &TensorType::shape>("shape", {.min = 1}),
};

constexpr auto kName = key<&Layer::name>("name"), kOp = key<&Layer::op>("op");
constexpr auto kInputs = key<&Layer::inputs>("inputs");
constexpr auto kScope = optional<&Layer::scope>("scope").written_if<has_own_scope>();
constexpr auto kCall = key<&Layer::call>("call", kCallType).given<is_call<Layer>>();
constexpr auto kFrozen = optional<&Layer::frozen>("frozen", kFrozenType);

constexpr Object kNode{"node", kName, kOp, kInputs, kScope, attributes_key<Layer>(), kCall, kFrozen};
constexpr Object kLayer{
    "layer",
    kName,
    kOp,
    kInputs,
    kScope,
    attributes_key<Layer>(),
    key<&Layer::nodes>("nodes", kNode).given<is_graph<Layer>>(),
    check<check_nodes<Layer>>(),
    key<&Layer::outputs>("outputs").given<is_graph<Layer>>(),
    kCall,
    optional<&Layer::weights_of>("weights_of"),
    kFrozen,
};
constexpr Object kLoss{
    "loss",
    key<&LossSpec::op>("op"),
    key<&LossSpec::inputs>("inputs"),
    attributes_key<LossSpec>(),
    key<&LossSpec::nodes>("nodes", kNode).given<is_graph<LossSpec>>(),
    check<check_nodes<LossSpec>>(),
    key<&LossSpec::outputs>("outputs").given<is_graph<LossSpec>>(),
};
constexpr Object kModelKeys{
    "model",
    key<&ModelGraph::name>("name"),
    optional<&ModelGraph::verified>("verified"),
    optional<&ModelGraph::weights>("weights"),
    key<&ModelGraph::inputs>("inputs", kDataTensor),
    defaulted<&ModelGraph::targets>("targets", kDataTensor),
    key<&ModelGraph::layers>("layers", kLayer),
    key<&ModelGraph::outputs>("outputs"),
    optional<&ModelGraph::loss>("loss", kLoss),
};

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
  return resolve(document_from_json(kModelKeys, json, std::string(pointer)), pointer).graph;
}

Json to_json(const ModelGraph& graph) {
  Json json = document_json(kModelKeys, graph);
  json["version"] = version_of(graph);
  return json;
}

ModelGraph parse_model(std::string_view text) { return model_from_json(parse_json(text)); }

Keys model_keys() { return keys_of(kModelKeys); }

}  // namespace pp
