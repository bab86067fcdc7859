#include "tests/support/schema.h"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "libprofile/core/schema/document_schema.h"
#include "librun/documents.h"

namespace pp::test {
namespace {

using Adapter = valijson::adapters::NlohmannJsonAdapter;

/// The library knows the other kind of object, and takes integers from 2^63 on for negative ones: here they are
/// the largest that it knows.
nlohmann::json plain(const Json& json) {
  using Event = nlohmann::json::parse_event_t;
  const auto in_range = [](int, Event event, nlohmann::json& parsed) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (event == Event::value && parsed.is_number_unsigned() && parsed.get<std::uint64_t>() > kMost)
      parsed = kMost;
    return true;
  };
  return nlohmann::json::parse(json.dump(), in_range);
}

}  // namespace

SchemaError schema_error_of(const Json& schema) {
  const auto parsed = std::make_shared<valijson::Schema>();
  const nlohmann::json rules = plain(schema);
  valijson::SchemaParser().populateSchema(Adapter(rules), *parsed);
  return [parsed](const Json& json) {
    const nlohmann::json target = plain(json);
    valijson::Validator validator;
    valijson::ValidationResults results;
    if (validator.validate(*parsed, Adapter(target), &results)) return std::string();
    valijson::ValidationResults::Error error;
    std::string text;
    for (int i = 0; i < 3 && results.popError(error); ++i) {
      for (const std::string& place : error.context) text += place;
      text += ": " + error.description + "; ";
    }
    return text.empty() ? "refused" : text;
  };
}

std::string schema_error(std::string_view document, const Json& json) {
  static std::map<std::string, SchemaError, std::less<>> known;
  auto found = known.find(document);
  if (found == known.end())
    found = known.emplace(document, schema_error_of(document_schema(document, document_keys()))).first;
  return found->second(json);
}

}  // namespace pp::test
