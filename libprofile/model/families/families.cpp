#include "libprofile/model/families/families.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/text.h"
#include "libprofile/model/families/catalogue.h"

namespace pp::model {
namespace {

/// Integers without `.0`.
std::string number_text(double value) {
  return std::floor(value) == value ? std::to_string(std::llround(value)) : Json(value).dump();
}

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorKind::usage, message); }

const Family& find_family(std::string_view name) {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    if (family.row.name == name) return family;
    names.emplace_back(family.row.name);
  }
  fail(unknown_name(name, names, "model family"));
}

const FamilyArgument& find_argument(const FamilyRow& row, std::string_view name) {
  std::string names;
  for (const FamilyArgument& argument : row.arguments) {
    if (argument.name == name) return argument;
    names.append(names.empty() ? "" : ", ").append(to_text(argument));
  }
  fail(std::string(row.name) + ": unknown argument \"" + std::string(name) + "\"; use one of " + names +
       " (the defaults)");
}

double parse_value(const FamilyRow& row, const FamilyArgument& argument, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc{} && end == text.data() + text.size();
  const bool valid = is_number && value >= argument.min && value <= argument.max &&
                     (!argument.whole || std::floor(value) == value);
  if (valid) return value;
  fail(std::string(row.name) + ": " + std::string(argument.name) + "=" + std::string(text) +
       " is out of range; use " + (argument.whole ? "an integer" : "a number") + " from " +
       number_text(argument.min) + " to " + number_text(argument.max));
}

/// `classes=10,image=32`; what is missing gets its default.
std::map<std::string, double, std::less<>> parse_arguments(const FamilyRow& row, std::string_view text) {
  std::map<std::string, double, std::less<>> values;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      fail(std::string(row.name) + ": \"" + std::string(item) + "\" is no argument; write " +
           std::string(row.name) + ":name=value,name=value");
    }
    const FamilyArgument& argument = find_argument(row, item.substr(0, equals));
    if (!values.emplace(argument.name, parse_value(row, argument, item.substr(equals + 1))).second) {
      fail(std::string(row.name) + ": argument \"" + std::string(argument.name) +
           "\" appears twice; give it once");
    }
  }
  for (const FamilyArgument& argument : row.arguments) values.emplace(argument.name, argument.default_value);
  return values;
}

/// The family's name with the arguments that differ from their defaults, in the table's order.
std::string model_name(const FamilyRow& row, const Arguments& arguments) {
  std::string name(row.name);
  char separator = ':';
  for (const FamilyArgument& argument : row.arguments) {
    const double value = arguments.number(argument.name);
    if (value == argument.default_value) continue;
    name += std::exchange(separator, ',') + std::string(argument.name) + "=" + number_text(value);
  }
  return name;
}

}  // namespace

std::string to_text(const FamilyArgument& argument) {
  return std::string(argument.name) + "=" + number_text(argument.default_value);
}

const std::vector<FamilyRow>& family_table() {
  static const std::vector<FamilyRow> table = [] {
    std::vector<FamilyRow> rows;
    for (const Family& family : families()) rows.push_back(family.row);
    return rows;
  }();
  return table;
}

ModelGraph build_family(std::string_view spec) {
  const std::size_t colon = spec.find(':');
  const Family& family = find_family(spec.substr(0, colon));
  const std::string_view text = colon == std::string_view::npos ? std::string_view{} : spec.substr(colon + 1);
  const Arguments arguments(std::string(family.row.name), parse_arguments(family.row, text));
  GraphBuilder builder(model_name(family.row, arguments));
  return resolve(family.build(std::move(builder), arguments)).graph;
}

}  // namespace pp::model
