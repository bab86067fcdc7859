#include "libprofile/core/ops/op_table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/ops/rows.h"

namespace pp {

namespace {

std::vector<OpRow> sorted(std::vector<OpRow> rows) {
  std::sort(rows.begin(), rows.end(), [](const OpRow& a, const OpRow& b) { return a.name < b.name; });
  return rows;
}

std::vector<OpRow> all_ops() {
  std::vector<OpRow> rows;
  for (std::vector<OpRow> group :
       {detail::attention_ops(), detail::convolution_ops(), detail::dropout_ops(), detail::elementwise_ops(),
        detail::embedding_ops(), detail::expert_ops(), detail::grouped_query_attention_ops(),
        detail::linear_ops(), detail::normalisation_ops(), detail::recurrent_ops(), detail::shape_ops()}) {
    rows.insert(rows.end(), std::make_move_iterator(group.begin()), std::make_move_iterator(group.end()));
  }
  return sorted(std::move(rows));
}

const OpRow* find_row(const std::vector<OpRow>& table, std::string_view name) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const OpRow& r) { return r.name == name; });
  return row == table.end() ? nullptr : &*row;
}

std::string text_of(const Attribute& value) {
  return std::visit([](const auto& v) { return Json(v).dump(); }, value);
}

/// What values of the attribute may be: `an integer from 1 to 1048576`.
std::string allowed(const AttributeSpec& spec) {
  if (std::holds_alternative<bool>(spec.type)) return "true or false";
  if (!spec.choices.empty()) {
    std::string list;
    for (const std::string_view choice : spec.choices)
      list.append(list.empty() ? "one of \"" : ", \"").append(choice).append("\"");
    return list;
  }
  if (std::holds_alternative<std::int64_t>(spec.type)) {
    return "an integer from " + std::to_string(std::llround(spec.min)) + " to " +
           std::to_string(std::llround(spec.max));
  }
  if (std::holds_alternative<std::vector<std::int64_t>>(spec.type)) {
    return "1 to " + std::to_string(kMostDimensions) + " integers from " +
           std::to_string(std::llround(spec.min)) + " to " + std::to_string(std::llround(spec.max));
  }
  return "a number from " + Json(spec.min).dump() + " to " + Json(spec.max).dump();
}

/// A whole number is a number; nothing else converts.
Attribute converted(const AttributeSpec& spec, const Attribute& value) {
  if (std::holds_alternative<double>(spec.type) && std::holds_alternative<std::int64_t>(value)) {
    return static_cast<double>(std::get<std::int64_t>(value));
  }
  return value;
}

bool in_range(const AttributeSpec& spec, const Attribute& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    return static_cast<double>(*whole) >= spec.min && static_cast<double>(*whole) <= spec.max;
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
    return !list->empty() && list->size() <= kMostDimensions && std::ranges::all_of(*list, [&](std::int64_t v) {
      return static_cast<double>(v) >= spec.min && static_cast<double>(v) <= spec.max;
    });
  }
  if (const auto* text = std::get_if<std::string>(&value))
    return std::ranges::find(spec.choices, *text) != spec.choices.end();
  if (const auto* number = std::get_if<double>(&value)) return *number >= spec.min && *number <= spec.max;
  return true;
}

void refuse_unknown(const OpRow& row, const Attributes& given, std::string_view pointer) {
  for (const auto& [name, value] : given) {
    const auto known = [&name = name](const AttributeSpec& spec) { return spec.name == name; };
    if (std::any_of(row.attributes.begin(), row.attributes.end(), known)) continue;
    std::string names;
    for (const AttributeSpec& spec : row.attributes) names.append(names.empty() ? "" : ", ").append(spec.name);
    const std::string remedy = names.empty() ? "remove it, the op has none" : "use one of " + names;
    throw Error(ErrorKind::data, append_pointer(pointer, name) + ": unknown attribute of " +
                                     std::string(row.name) + "; " + remedy);
  }
}

}  // namespace

const std::vector<OpRow>& op_table() {
  static const std::vector<OpRow> table = all_ops();
  return table;
}

const std::vector<OpRow>& loss_table() {
  static const std::vector<OpRow> table = sorted(detail::losses());
  return table;
}

const OpRow* find_op(std::string_view name) { return find_row(op_table(), name); }
const OpRow* find_loss(std::string_view name) { return find_row(loss_table(), name); }

OpResult OpRow::result(const Attributes& given, std::span<const TensorType> inputs) const {
  if (input.floating) detail::require_floating(inputs);
  if (!inputs.empty()) detail::require_dimensions(inputs, 0, input);
  return infer(given, inputs);
}

Attributes complete_attributes(const OpRow& row, const Attributes& given, std::string_view pointer) {
  refuse_unknown(row, given, pointer);
  Attributes complete;
  for (const AttributeSpec& spec : row.attributes) {
    const auto fail = [&](const std::string& message) {
      throw Error(ErrorKind::data, append_pointer(pointer, spec.name) + ": " + message);
    };
    if (const auto found = given.find(spec.name); found != given.end()) {
      const Attribute value = converted(spec, found->second);
      if (value.index() != spec.type.index() || !in_range(spec, value)) {
        fail("must be " + allowed(spec) + ", not " + text_of(found->second));
      }
      complete.emplace(spec.name, value);
    } else if (spec.default_value) {
      complete.emplace(spec.name, *spec.default_value);
    } else if (!spec.default_from.empty()) {
      complete.emplace(spec.name, complete.at(std::string(spec.default_from)));  // stands earlier in the row
    } else {
      fail("missing; " + std::string(row.name) + " needs it: " + std::string(spec.summary) + ", " +
           allowed(spec));
    }
  }
  return complete;
}

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
    row["dimensions"] = {op.input.least, op.input.most};
    row["examples"] = op.examples;
    if (!op.aten.empty()) row["aten"] = op.aten;
    row["attributes"] = Json::array();
    for (const AttributeSpec& spec : op.attributes) row["attributes"].push_back(attribute_json(spec));
    json.push_back(std::move(row));
  }
  return json;
}

namespace {

/// `kernel_size, stride=kernel_size, padding=0`
std::string attribute_list(const OpRow& row) {
  std::string list;
  for (const AttributeSpec& spec : row.attributes) {
    list.append(list.empty() ? "" : ", ").append(spec.name);
    if (spec.default_value)
      list += "=" + std::visit([](const auto& value) { return Json(value).dump(); }, *spec.default_value);
    if (!spec.default_from.empty()) list.append("=").append(spec.default_from);
  }
  return list;
}

std::string notes(const OpRow& row) {
  std::string list;
  const auto note = [&](bool holds, const char* text) {
    if (holds) list.append(list.empty() ? "" : ", ").append(text);
  };
  note(row.batch_statistics, "statistics");
  note(row.draws, "draws");
  note(row.weight_gradient_with_input, "W with I");
  note(row.index_limit != nullptr, "index limit");
  note(!row.runnable, "not run");
  return list;
}

/// `| a | | c |`
std::string line(std::initializer_list<std::string> cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += (cell.empty() ? "" : " " + cell) + " |";
  return text + "\n";
}

}  // namespace

std::string operations_markdown() {
  std::string text = line({"op", "attributes and defaults", "shapes", "FLOPs per sample", "notes"}) +
                     "|---|---|---|---|---|\n";
  const auto name = [](const OpRow& row) { return "`" + std::string(row.name) + "`"; };
  for (const OpRow& row : op_table())
    text += line({name(row), attribute_list(row), std::string(row.shapes), std::string(row.flops), notes(row)});
  text += "\n" + line({"loss", "attributes and defaults", "prediction, target", "value", "FLOPs per sample"}) +
          "|---|---|---|---|---|\n";
  for (const OpRow& row : loss_table()) {
    text += line({name(row), attribute_list(row), std::string(row.shapes), std::string(row.summary),
                  std::string(row.flops)});
  }
  return text;
}

}  // namespace pp
