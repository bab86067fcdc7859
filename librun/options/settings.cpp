#include "librun/options/settings.h"

#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

Setting read_setting(ObjectReader& reader, std::string_view key, const std::string& name, const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    reader.fail(key, "\"" + name + "\" is beyond 64 bits");
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) reader.fail(key, "\"" + name + "\" must be a text, a number, or true or false");
  return value.get<std::string>();
}

}  // namespace

Json to_json(const Settings& settings) {
  Json json = Json::object();
  for (const auto& [key, value] : settings) std::visit([&](const auto& typed) { json[key] = typed; }, value);
  return json;
}

Settings read_settings(ObjectReader& reader, std::string_view key) {
  Settings settings;
  const Json& json = reader.raw(key);
  if (!json.is_object()) reader.fail(key, "must be an object");
  for (const auto& [name, value] : json.items()) settings.emplace(name, read_setting(reader, key, name, value));
  return settings;
}

std::string setting_text(const Setting& setting) {
  if (const auto* text = std::get_if<std::string>(&setting)) return *text;
  return std::visit([](const auto& value) { return Json(value).dump(); }, setting);
}

std::uint64_t read_seed(ObjectReader& reader, std::string_view key) {
  const Json& json = reader.raw(key);
  if (!json.is_number_unsigned() && !(json.is_number_integer() && json.get<std::int64_t>() >= 0))
    reader.fail(key, "must be an integer from 0 to 2^64-1");
  return json.get<std::uint64_t>();
}

void require(bool holds, std::string_view name, double value, std::string_view limit) {
  if (holds) return;
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  throw Error(ErrorKind::usage,
              std::string(name) + " = " + std::string(text.data(), end) + ": must be " + std::string(limit));
}

}  // namespace pp::run
