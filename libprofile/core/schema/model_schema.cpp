// The part of the schemas that the table of operations gives: which attributes a layer has follows from its op.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/core/model/constant_formula.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/schema/document_schema.h"

namespace pp::detail {
namespace {

constexpr std::string_view kTypes = "'float32|float64|bfloat16|int64|uint8|bool'";

struct ObjectRow {
  std::string_view name;
  std::string_view keys;
};
constexpr std::array kModelRows{
    ObjectRow{"model",
              "name text, verified? flag, weights? text, inputs [data_tensor], targets? [data_tensor], layers "
              "[layer], "
              "outputs [text], "
              "loss? loss"},
    ObjectRow{"data_tensor", "name text, dtype? 'float32|float64|bfloat16|int64|uint8', shape [size]"},
    ObjectRow{"call",
              "target text, arguments object, parameters? [call_tensor], buffers? [call_tensor], constants? "
              "[call_constant], outputs [call_output], flops? number, precision? 'float32'"},
    ObjectRow{"call_tensor", "name text, dtype? DTYPE, shape [size]"},
    ObjectRow{"call_constant", "name text, dtype? DTYPE, shape [size], values? [value], formula? formula"},
    ObjectRow{"call_output", "dtype? DTYPE, shape [size], rows? count, batch_dim? count"},
    ObjectRow{"linear_formula", "kind 'linear', offset? signed, steps [signed]"},
    ObjectRow{
        "band_formula",
        "kind 'band', offset? signed, steps [signed], low? value, high? value, inside? value, outside? value"},
    ObjectRow{
        "wave_formula",
        "kind 'waves', position_dim count, function 'cos|sin|cos_sin|sin_cos', columns 'single|halves|pairs', "
        "frequencies [signed], factor? signed"},
};

Json with_types(Json schema) {
  if (schema.is_object() && schema.value("$ref", "") == "#/definitions/DTYPE") return type_schema(kTypes);
  if (schema.is_structured()) {
    for (auto& member : schema) member = with_types(std::move(member));
  }
  return schema;
}

Json attribute_schema(const AttributeSpec& spec) {
  struct Visit {
    const AttributeSpec& spec;
    Json operator()(bool) const { return {{"type", "boolean"}}; }
    Json operator()(std::int64_t) const { return ranged("integer"); }
    Json operator()(double) const { return ranged("number"); }
    Json operator()(const std::string&) const { return {{"enum", spec.choices}}; }
    Json operator()(const std::vector<std::int64_t>&) const {
      return {{"type", "array"}, {"minItems", 1}, {"items", ranged("integer")}};
    }
    Json ranged(const char* type) const {
      return {{"type", type}, {"minimum", spec.min}, {"maximum", spec.max}};
    }
  };
  Json schema = std::visit(Visit{spec}, spec.type);
  schema["description"] = spec.summary;
  if (spec.default_value)
    schema["default"] = std::visit([](const auto& value) { return Json(value); }, *spec.default_value);
  return schema;
}

Json attributes_schema(const OpRow& row) {
  Json schema{{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (const AttributeSpec& spec : row.attributes) {
    schema["properties"][std::string(spec.name)] = attribute_schema(spec);
    if (spec.required()) schema["required"].push_back(spec.name);
  }
  schema["additionalProperties"] = false;
  return schema;
}

/// Keys that every layer or node has, and `more`.
Json layer_keys(std::string_view more) {
  return object_schema("name text, op text, inputs [text]" + std::string(more));
}

Json named(Json schema, Json op) {
  schema["properties"]["op"] = std::move(op);
  return schema;
}

/// One of: an operation of the table with its attributes, a call, a graph.
Json layers_schema(std::span<const OpRow> table, const std::string& more) {
  Json kinds = Json::array();
  for (const OpRow& row : table) {
    Json kind = named(layer_keys(", attributes? any" + more), {{"const", row.name}});
    kind["description"] = row.summary;
    kind["properties"]["attributes"] = attributes_schema(row);
    if (!kind["properties"]["attributes"]["required"].empty()) kind["required"].push_back("attributes");
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

Json loss_schema() {
  Json kinds = Json::array();
  for (const OpRow& row : loss_table()) {
    Json kind = named(object_schema("op text, inputs [text], attributes? any"), {{"const", row.name}});
    kind["properties"]["attributes"] = attributes_schema(row);
    kinds.push_back(std::move(kind));
  }
  kinds.push_back(
      named(object_schema("op text, inputs [text], nodes [node], outputs [text]"), {{"const", kGraphOp}}));
  return {{"oneOf", std::move(kinds)}};
}

}  // namespace

void add_model_definitions(Json& definitions) {
  for (const ObjectRow& row : kModelRows)
    definitions[std::string(row.name)] = with_types(object_schema(row.keys));
  definitions["value"] = {
      {"oneOf", {{{"type", "number"}}, with_types(object_schema("number '-inf|inf|nan'"))}}};
  Json formulas = Json::array();
  for (const char* kind : {"linear_formula", "band_formula", "wave_formula"})
    formulas.push_back(type_schema(kind));
  definitions["formula"] = {{"oneOf", std::move(formulas)}};
  definitions["frozen"] = {{"oneOf", {{{"type", "boolean"}}, type_schema("[text]")}}};
  const std::string node = ", scope? text, frozen? frozen", layer = node + ", weights_of? text";
  Json nodes = layers_schema(op_table(), node), layers = layers_schema(op_table(), layer);
  nodes.push_back(named(layer_keys(", call call" + node), {{"const", kAtenOp}}));
  layers.push_back(named(layer_keys(", call call" + layer), {{"const", kAtenOp}}));
  layers.push_back(named(layer_keys(", nodes [node], outputs [text]" + layer), {{"const", kGraphOp}}));
  definitions["node"] = {{"oneOf", std::move(nodes)}};
  definitions["layer"] = {{"oneOf", std::move(layers)}};
  definitions["loss"] = loss_schema();
}

}  // namespace pp::detail
