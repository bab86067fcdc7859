#include "libprofile/core/ops/op_json.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

std::string_view type_name(const Attribute& type) {
  struct Names {
    std::string_view operator()(bool) const { return "boolean"; }
    std::string_view operator()(std::int64_t) const { return "integer"; }
    std::string_view operator()(double) const { return "number"; }
    std::string_view operator()(const std::string&) const { return "text"; }
    std::string_view operator()(const std::vector<std::int64_t>&) const { return "integers"; }
  };
  return std::visit(Names(), type);
}

Json attribute_json(const AttributeSpec& spec) {
  Json json{{"name", spec.name}, {"summary", spec.summary}, {"type", type_name(spec.type)}};
  json["required"] = spec.required();
  if (spec.default_value)
    json["default"] = std::visit([](const auto& value) { return Json(value); }, *spec.default_value);
  if (!spec.default_from.empty()) json["default_from"] = spec.default_from;
  if (!spec.choices.empty()) {
    json["choices"] = spec.choices;
  } else if (!std::holds_alternative<bool>(spec.type)) {
    json["least"] = spec.min;
    json["most"] = spec.max;
  }
  if (spec.silent) json["silent"] = true;
  return json;
}

}  // namespace

Json operations_json() {
  Json json = Json::array();
  for (const OpRow& op : op_table()) {
    Json row{{"name", op.name}, {"summary", op.summary}, {"runnable", op.runnable}};
    row["inputs"] = {op.min_inputs, op.max_inputs};
    row["attributes"] = Json::array();
    for (const AttributeSpec& spec : op.attributes) row["attributes"].push_back(attribute_json(spec));
    json.push_back(std::move(row));
  }
  return json;
}

}  // namespace pp
