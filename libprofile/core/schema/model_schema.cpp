// The part of the schemas that the table of operations gives: which attributes a layer has follows from its op.
#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "libprofile/core/json_fields.h"
#include "libprofile/core/model/aten_call.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/schema/document_schema.h"

namespace pp::detail {
namespace {

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

/// One of: an operation of the table with its attributes, a call, a graph; `keys` are those of all of them.
Json kinds_schema(const Json& keys, std::span<const OpRow> table) {
  Json kinds = Json::array();
  const auto add = [&](std::string_view op, std::initializer_list<const char*> own) -> Json& {
    Json kind = keys;
    for (const char* key : {"attributes", "call", "nodes", "outputs"})
      if (std::ranges::find(own, std::string_view(key)) == own.end()) kind["properties"].erase(key);
    kind["properties"]["op"] = {{"const", op}};
    kinds.push_back(std::move(kind));
    return kinds.back();
  };
  const auto add_required = [&](std::string_view op, std::initializer_list<const char*> own) {
    if (!std::ranges::all_of(own, [&](const char* key) { return keys["properties"].contains(key); })) return;
    Json& kind = add(op, own);
    for (const char* key : own) kind["required"].push_back(key);
  };
  for (const OpRow& row : table) {
    Json& kind = add(row.name, {"attributes"});
    if (!row.summary.empty()) kind["description"] = row.summary;
    Json& attributes = kind["properties"]["attributes"] = attributes_schema(row);
    if (!attributes["required"].empty()) kind["required"].push_back("attributes");
  }
  add_required(kAtenOp, {"call"});
  add_required(kGraphOp, {"nodes", "outputs"});
  return {{"oneOf", std::move(kinds)}};
}

}  // namespace

void add_model_definitions(Json& definitions) {
  for (const Keys& keys : {model_keys(), aten_call_keys()}) add_definitions(keys, definitions);
  Json formulas = Json::array();
  for (const Keys& keys : formula_keys()) {
    add_definitions(keys, definitions);
    formulas.push_back({{"$ref", "#/definitions/" + std::string(keys.name)}});
  }
  definitions["formula"] = {{"oneOf", std::move(formulas)}};
  const Json special{{"type", "object"},
                     {"properties", {{"number", names_schema(all_names<SpecialNumber>())}}},
                     {"required", {"number"}},
                     {"additionalProperties", false}};
  definitions["value"] = {{"oneOf", {{{"type", "number"}}, special}}};
  const Json texts{{"type", "array"}, {"items", {{"type", "string"}}}};
  definitions["frozen"] = {{"oneOf", {{{"type", "boolean"}}, texts}}};
  for (const char* name : {"node", "layer"}) definitions[name] = kinds_schema(definitions[name], op_table());
  definitions["loss"] = kinds_schema(definitions["loss"], loss_table());
}

}  // namespace pp::detail
