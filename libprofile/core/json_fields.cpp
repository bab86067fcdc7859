// What field lists make of a document, without its types.
#include "libprofile/core/json_fields.h"

#include <span>

#include "libprofile/core/schema/document_schema.h"

namespace pp {
namespace {

std::span<const Field> fields_of(const Keys& keys) { return {keys.fields, keys.count}; }

/// A limit in a schema: whole numbers are written as such.
Json limit(double value) {
  constexpr double kExact = 1e15;
  const bool whole =
      value > -kExact && value < kExact && value == static_cast<double>(static_cast<std::int64_t>(value));
  return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

void add_keys(const Keys& keys, const void* object, Json& json) {
  for (const Field& field : fields_of(keys)) {
    if (field.check || (field.write_when && !field.write_when(object))) continue;
    if (const void* value = field.value(object)) json[std::string(field.key)] = field.type->write(field, value);
  }
}

}  // namespace

void read_keys(const Keys& keys, ObjectReader& reader, void* object) {
  for (const Field& field : fields_of(keys)) {
    if (field.check) {
      field.check(object, reader);
      continue;
    }
    if (field.read_when && !field.read_when(object)) continue;
    const bool there = reader.has(field.key);
    if (!there && field.required)
      reader.fail(field.key, "missing; add this key, " + field.type->expected(field));
    if (there && field.place)
      field.type->read(field, reader.raw(field.key), append_pointer(reader.pointer(), field.key),
                       field.place(object));
  }
}

Json write_keys(const Keys& keys, const void* object) {
  Json json = Json::object();
  add_keys(keys, object, json);
  return json;
}
void read_document(const Keys& keys, const Json& json, std::string pointer, void* object) {
  read_document(
      json, "pp." + std::string(keys.name), IntegerRange{1, newest_version(keys.name)},
      [&](ObjectReader& reader) { read_keys(keys, reader, object); }, std::move(pointer));
}

Json write_document(const Keys& keys, const void* object) {
  Json head{{"format", "pp." + std::string(keys.name)}, {"version", newest_version(keys.name)}};
  add_keys(keys, object, head);
  return head;
}

void look_at(ObjectReader& reader, std::string_view key, const std::function<void(ObjectReader&)>& look) {
  if (!reader.has(key) || !reader.raw(key).is_object()) return;
  ObjectReader member(reader.raw(key), append_pointer(reader.pointer(), key));
  look(member);
}

void look_at_each(ObjectReader& reader, std::string_view key, const std::function<void(ObjectReader&)>& look) {
  if (!reader.has(key) || !reader.raw(key).is_array()) return;
  const std::string pointer = append_pointer(reader.pointer(), key);
  std::size_t position = 0;
  for (const Json& element : reader.raw(key)) {
    ObjectReader member(element, append_pointer(pointer, std::to_string(position++)));
    look(member);
  }
}

Json object_schema(const Keys& keys) {
  Json schema{{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (const Field& field : fields_of(keys)) {
    if (field.check) continue;
    schema["properties"][std::string(field.key)] = field.type->schema(field);
    if (field.required && !field.read_when) schema["required"].push_back(field.key);
  }
  schema["additionalProperties"] = false;
  return schema;
}

void add_definitions(const Keys& keys, Json& definitions) {
  definitions[std::string(keys.name)] = object_schema(keys);
  for (const Field& field : fields_of(keys))
    if (field.keys.fields) add_definitions(field.keys, definitions);
}

namespace detail {

std::string see_description(const Field&) { return "see the document's description"; }

void read_object(const Keys& keys, const Json& json, const std::string& pointer, void* object) {
  ObjectReader reader(json, pointer);
  read_keys(keys, reader, object);
  reader.finish();
}

void read_context(const Json& json, const std::string& pointer, std::map<std::string, std::string>& context) {
  for (const auto& [name, value] : object_at(json, pointer).items()) {
    if (!value.is_string())
      fail_at(append_pointer(pointer, name), "must be a string, the context is free text");
    context.emplace(name, value.get<std::string>());
  }
}

Json integer_schema(IntegerRange range) {
  Json schema{{"type", "integer"}, {"minimum", range.min}};
  if (range.max < std::numeric_limits<int>::max()) schema["maximum"] = range.max;
  return schema;
}

Json number_schema(NumberRange range) {
  Json schema{{"type", "number"}};
  if (range.min == std::numeric_limits<double>::min()) {
    schema["exclusiveMinimum"] = 0;
  } else if (range.min != std::numeric_limits<double>::lowest()) {
    schema["minimum"] = limit(range.min);
  }
  if (range.max != std::numeric_limits<double>::max()) schema["maximum"] = limit(range.max);
  return schema;
}

Json names_schema(const std::vector<std::string>& names) { return {{"enum", names}}; }

}  // namespace detail
}  // namespace pp
