#include "libplan/peers/foreign_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace pp::plan {

void for_each_object(ObjectReader& reader, std::string_view key,
                     const std::function<void(ObjectReader&)>& read) {
  const Json& array = reader.raw(key);
  if (!array.is_array()) reader.fail(key, "must be an array");
  const std::string pointer = append_pointer(reader.pointer(), key);
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader element(array[i], append_pointer(pointer, std::to_string(i)));
    read(element);
  }
}

std::string read_id(ObjectReader& reader, std::string_view key) {
  const Json& id = reader.raw(key);
  if (id.is_number_integer()) return std::to_string(id.get<std::int64_t>());
  if (id.is_string() && !id.get<std::string>().empty()) return id.get<std::string>();
  reader.fail(key, "must be a whole number or a name");
}

bool read_flag(ObjectReader& reader, std::string_view key) {
  if (!reader.has(key)) return false;
  const Json& flag = reader.raw(key);
  if (flag.is_boolean()) return flag.get<bool>();
  if (!flag.is_number()) reader.fail(key, "must be true or false, or 1 or 0");
  return flag.get<double>() != 0;
}

Bytes read_bytes(ObjectReader& reader, std::string_view key) {
  return Bytes(std::llround(reader.number(key, {.max = double{kMostInteger}})));
}

}  // namespace pp::plan
