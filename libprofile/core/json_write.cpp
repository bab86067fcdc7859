// Json to text: the same value gives the same bytes.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/json_reader.h"

namespace pp {
namespace {

constexpr std::size_t kLineWidth = 120;

void require_finite(const Json& json, const std::string& pointer) {
  if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    throw Error(ErrorKind::internal, pointer + ": NaN or infinity cannot be written to a document");
  }
  if (!json.is_structured()) return;
  for (const auto& [key, value] : json.items()) require_finite(value, append_pointer(pointer, key));
}

/// Text that is not UTF-8 (a host name, a path in a context) is written with replacement characters.
std::string scalar(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// `{ "a": 1, "b": [1, 2] }`; stops growing soon after `limit` characters, the caller only compares the length
/// then.
void append_line(std::string& text, const Json& json, std::size_t limit) {
  if (!json.is_structured() || json.empty()) {
    text += scalar(json);
    return;
  }
  text += json.is_object() ? "{ " : "[";
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    if (text.size() > limit) return;
    if (!first) text += ", ";
    first = false;
    if (json.is_object()) text.append(scalar(key)).append(": ");
    append_line(text, value, limit);
  }
  text += json.is_object() ? " }" : "]";
}

/// What fits stands on one line, everything else one member a line.
void append_indented(std::string& text, const Json& json, std::size_t indent, std::size_t column) {
  std::string line;
  append_line(line, json, kLineWidth);
  if (!json.is_structured() || json.empty() || (indent > 0 && column + line.size() <= kLineWidth)) {
    text += line;
    return;
  }
  text += json.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    text += first ? "\n" : ",\n";
    first = false;
    const std::size_t start = text.size();
    text.append(indent + 2, ' ');
    if (json.is_object()) text.append(scalar(key)).append(": ");
    append_indented(text, value, indent + 2, text.size() - start);
  }
  text.append("\n").append(indent, ' ').append(json.is_object() ? "}" : "]");
}

}  // namespace

std::string dump_json(const Json& json) {
  require_finite(json, "");
  std::string text;
  append_indented(text, json, 0, 0);
  text += '\n';
  return text;
}

std::string dump_json_compact(const Json& json) {
  require_finite(json, "");
  return scalar(json);
}

}  // namespace pp
