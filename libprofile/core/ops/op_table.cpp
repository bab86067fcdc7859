#include "libprofile/core/ops/op_table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/ops/rows.h"

namespace pp {
namespace {

/// Of a list attribute, and so of a shape.
constexpr std::size_t kMostDimensions = 16;

std::vector<OpRow> sorted(std::vector<OpRow> rows) {
  std::sort(rows.begin(), rows.end(), [](const OpRow& a, const OpRow& b) { return a.name < b.name; });
  return rows;
}

std::vector<OpRow> all_ops() {
  std::vector<OpRow> rows = detail::basic_ops();
  for (std::vector<OpRow> group : {detail::pointwise_ops(), detail::image_ops(), detail::sequence_ops(),
                                   detail::attention_ops(), detail::shape_ops()}) {
    rows.insert(rows.end(), group.begin(), group.end());
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

namespace detail {

AttributeSpec required_integer(std::string_view name, double min, double max, std::string_view summary) {
  return {name, std::int64_t{}, std::nullopt, {}, min, max, summary};
}
AttributeSpec required_integers(std::string_view name, double min, double max, std::string_view summary) {
  return {name, std::vector<std::int64_t>{}, std::nullopt, {}, min, max, summary};
}
AttributeSpec integer_attribute(std::string_view name, std::int64_t value, double min, double max,
                                std::string_view summary) {
  return {name, std::int64_t{}, value, {}, min, max, summary};
}
AttributeSpec integer_like(std::string_view name, std::string_view other, double min, double max,
                           std::string_view summary) {
  return {name, std::int64_t{}, std::nullopt, other, min, max, summary};
}
AttributeSpec number_attribute(std::string_view name, double value, double min, double max,
                               std::string_view summary) {
  return {name, double{}, value, {}, min, max, summary};
}
AttributeSpec flag_attribute(std::string_view name, bool value, std::string_view summary) {
  return {name, bool{}, value, {}, 0, 1, summary};
}

void refuse_input(std::size_t position, const TensorType& found, const std::string& meaning) {
  throw Error(ErrorKind::data, "input " + std::to_string(position) + " is " +
                                   std::string(name_of(found.dtype)) + " " + to_text(found.shape) +
                                   ", but needs " + meaning);
}

void require_rank(std::span<const TensorType> inputs, std::size_t position, std::size_t rank,
                  const std::string& meaning) {
  if (inputs[position].shape.size() != rank) refuse_input(position, inputs[position], meaning);
}

void require_last_dimension(std::span<const TensorType> inputs, const std::string& meaning) {
  if (inputs[0].shape.empty()) refuse_input(0, inputs[0], "at least one dimension, " + meaning);
}

void require_floating(std::span<const TensorType> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(inputs[i].dtype)) refuse_input(i, inputs[i], "a floating type");
  }
}

std::size_t dimension(const Attributes& attributes, std::span<const TensorType> inputs) {
  const auto dim = static_cast<std::size_t>(integer(attributes, "dim"));
  if (dim >= inputs[0].shape.size()) {
    refuse_input(0, inputs[0],
                 "a dimension " + std::to_string(dim) + " (attribute dim, counted without the batch)");
  }
  return dim;
}

AttributeSpec dim_attribute() {
  return integer_attribute("dim", 0, 0, 15, "dimension, counted without the batch");
}

double elements(const TensorType& type) { return static_cast<double>(element_count(type.shape)); }

}  // namespace detail
}  // namespace pp
