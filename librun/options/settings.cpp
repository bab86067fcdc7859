// Settings and seeds as documents carry them.
#include "librun/options/settings.h"

#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/json_fields.h"

namespace pp::run {

namespace {

Setting read_setting(const Json& value, const std::string& pointer, const std::string& name) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    detail::fail_at(pointer, "\"" + name + "\" is beyond 64 bits");
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (!value.is_string())
    detail::fail_at(pointer, "\"" + name + "\" must be a text, a number, or true or false");
  return value.get<std::string>();
}

}  // namespace

const ValueType kSettings{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          if (!json.is_object()) detail::fail_at(pointer, "must be an object");
          for (const auto& [name, value] : json.items())
            static_cast<Settings*>(to)->emplace(name, read_setting(value, pointer, name));
        },
    .write = [](const Field&, const void* from) { return to_json(*static_cast<const Settings*>(from)); },
    .schema = [](const Field&) -> Json {
      const Json types{{{"type", "boolean"}}, {{"type", "number"}}, {{"type", "string"}}};
      return {{"type", "object"}, {"additionalProperties", {{"anyOf", types}}}};
    }};

const ValueType kSeed{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          if (!json.is_number_unsigned() && !(json.is_number_integer() && json.get<std::int64_t>() >= 0))
            detail::fail_at(pointer, "must be an integer from 0 to 2^64-1");
          *static_cast<std::uint64_t*>(to) = json.get<std::uint64_t>();
        },
    .write = [](const Field&, const void* from) { return Json(*static_cast<const std::uint64_t*>(from)); },
    .schema = [](const Field&) { return detail::integer_schema({}); }};

Json to_json(const Settings& settings) {
  Json json = Json::object();
  for (const auto& [key, value] : settings) std::visit([&](const auto& typed) { json[key] = typed; }, value);
  return json;
}

std::string setting_text(const Setting& setting) {
  if (const auto* text = std::get_if<std::string>(&setting)) return *text;
  return std::visit([](const auto& value) { return Json(value).dump(); }, setting);
}

void require(bool holds, std::string_view name, double value, std::string_view limit) {
  if (holds) return;
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  throw Error(ErrorKind::usage,
              std::string(name) + " = " + std::string(text.data(), end) + ": must be " + std::string(limit));
}

}  // namespace pp::run
