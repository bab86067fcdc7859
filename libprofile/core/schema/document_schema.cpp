#include "libprofile/core/schema/document_schema.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/json_fields.h"
#include "libprofile/core/text.h"

namespace pp {
namespace {

struct Document {
  std::string_view name;
  int newest = 1;               ///< version; readers take all from 1 on
  std::string_view lines = {};  ///< where the document is a line of a file: the types of these lines
};

constexpr std::array kDocuments{Document{"checkpoint", 2},
                                Document{"cluster"},
                                Document{"device"},
                                Document{"inference"},
                                Document{"metrics", 1, "metrics|metrics_step|metrics_evaluation"},
                                Document{"model", 2},
                                Document{"plan"},
                                Document{"profile"},
                                Document{"report"},
                                Document{"trainer"}};

constexpr auto kNames = [] {
  std::array<std::string_view, kDocuments.size()> names;
  std::ranges::transform(kDocuments, names.begin(), &Document::name);
  return names;
}();

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

template <class Take>
void split(std::string_view text, char separator, const Take& take) {
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    take(trimmed(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

/// The types that are no objects of the rows.
const Json* plain_type(std::string_view type) {
  static const Json types{{"text", {{"type", "string"}}},
                          {"flag", {{"type", "boolean"}}},
                          {"number", {{"type", "number"}, {"minimum", 0}}},
                          {"signed", {{"type", "number"}}},
                          {"positive", {{"type", "number"}, {"exclusiveMinimum", 0}}},
                          {"share", {{"type", "number"}, {"minimum", 0}, {"maximum", 1}}},
                          {"integer", {{"type", "integer"}}},
                          {"count", {{"type", "integer"}, {"minimum", 0}}},
                          {"size", {{"type", "integer"}, {"minimum", 1}}},
                          {"object", {{"type", "object"}}},
                          {"null", {{"type", "null"}}},
                          {"any", Json::object()}};
  const auto found = types.find(type);
  return found == types.end() ? nullptr : &*found;
}

/// Adds what a schema refers to, and what that refers to.
void add_referred(const Json& schema, const Json& all, Json& definitions) {
  if (schema.is_object() && schema.contains("$ref")) {
    const std::string reference = schema["$ref"].get<std::string>();
    const std::string name = reference.substr(reference.rfind('/') + 1);
    if (definitions.contains(name)) return;
    definitions[name] = all.at(name);
    add_referred(all.at(name), all, definitions);
  }
  if (!schema.is_structured()) return;
  for (const auto& [key, member] : schema.items()) add_referred(member, all, definitions);
}

const Document& document_named(std::string_view name) {
  const auto document = std::ranges::find(kDocuments, name, &Document::name);
  if (document != kDocuments.end()) return *document;
  const std::vector<std::string> names(kNames.begin(), kNames.end());
  throw Error(ErrorKind::usage, unknown_name(name, names, "document"));
}

/// Every document begins with `format` and `version`.
Json with_head(Json schema, const Document& document) {
  Json versions = Json::array();
  for (int version = 1; version <= document.newest; ++version) versions.push_back(version);
  schema["properties"]["format"] = {{"const", "pp." + std::string(document.name)}};
  schema["properties"]["version"] = {{"enum", std::move(versions)}};
  schema["required"].push_back("format");
  schema["required"].push_back("version");
  return schema;
}

}  // namespace

std::span<const std::string_view> schema_names() { return kNames; }

namespace detail {

Json type_schema(std::string_view type) {
  if (type.starts_with('['))
    return {{"type", "array"}, {"items", type_schema(type.substr(1, type.size() - 2))}};
  if (type.starts_with('{'))
    return {{"type", "object"}, {"additionalProperties", type_schema(type.substr(1, type.size() - 2))}};
  if (type.starts_with('\'')) {
    Json names = Json::array();
    split(type.substr(1, type.size() - 2), '|', [&](std::string_view name) { names.push_back(name); });
    return {{"enum", std::move(names)}};
  }
  if (type.find('|') != std::string_view::npos) {
    Json either = Json::array();
    split(type, '|', [&](std::string_view one) { either.push_back(type_schema(one)); });
    return {{"anyOf", std::move(either)}};
  }
  if (const Json* plain = plain_type(type)) return *plain;
  return {{"$ref", "#/definitions/" + std::string(type)}};
}

Json object_schema(std::string_view keys) {
  Json schema{{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  split(keys, ',', [&](std::string_view entry) {
    const std::size_t space = entry.find(' ');
    std::string key(entry.substr(0, space));
    const bool optional = key.ends_with('?');
    if (optional) key.pop_back();
    schema["properties"][key] = type_schema(trimmed(entry.substr(space)));
    if (!optional) schema["required"].push_back(key);
  });
  schema["additionalProperties"] = false;
  return schema;
}

}  // namespace detail

int newest_version(std::string_view document) { return document_named(document).newest; }

Json document_schema(std::string_view name, std::span<const Keys> lists) {
  const Document& document = document_named(name);
  Json all = Json::object();
  for (const Keys& list : lists) add_definitions(list, all);
  detail::add_model_definitions(all);
  for (const Document& one : kDocuments) {
    Json& schema = all.at(std::string(one.name));
    schema = with_head(std::move(schema), one);
  }
  const Json root = document.lines.empty() ? all.at(std::string(name)) : detail::type_schema(document.lines);
  Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "pp." + std::string(name)}};
  schema.update(root);
  Json definitions = Json::object();
  add_referred(root, all, definitions);
  schema["definitions"] = std::move(definitions);
  return schema;
}

}  // namespace pp
