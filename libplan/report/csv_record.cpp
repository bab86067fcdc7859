#include "libplan/report/csv_record.h"

#include <nlohmann/json.hpp>

namespace pp::plan {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field.append(c == '"' ? 2 : 1, c);
  return field + '"';
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? quoted(value.get<std::string>()) : value.dump();
}

}  // namespace

std::string csv_record(std::span<const Json> fields) {
  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i) line.append(i == 0 ? "" : ",").append(csv_field(fields[i]));
  return line + '\n';
}

}  // namespace pp::plan
