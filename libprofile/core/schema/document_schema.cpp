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
  int newest = 1;                                ///< version; readers take all from 1 on
  std::span<const std::string_view> lines = {};  ///< of a file whose lines are documents: their types
};

constexpr std::array kMetrics{"metrics"sv, "metrics_step"sv, "metrics_evaluation"sv};
constexpr std::array kDocuments{Document{"checkpoint", 2},
                                Document{"cluster"},
                                Document{"device"},
                                Document{"inference"},
                                Document{"metrics", 1, kMetrics},
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
  Json root = all.at(std::string(name));
  if (!document.lines.empty()) root = Json::object();
  for (const std::string_view line : document.lines)
    root["anyOf"].push_back({{"$ref", "#/definitions/" + std::string(line)}});
  Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "pp." + std::string(name)}};
  schema.update(root);
  Json definitions = Json::object();
  add_referred(root, all, definitions);
  schema["definitions"] = std::move(definitions);
  return schema;
}

}  // namespace pp
