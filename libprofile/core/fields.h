// The keys of an object as a list of fields, whatever its struct: what json_fields.h makes, and what readers,
// writers and schemas are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "libprofile/core/json_reader.h"

namespace pp {

struct Field;

/// The list of an object without the type of its struct.
struct Keys {
  std::string_view name;  ///< of its definition in schemas; of a document, behind `pp.`
  const Field* fields = nullptr;
  std::size_t count = 0;
};

namespace detail {
/// For values that no few words describe.
std::string see_description(const Field& field);
}  // namespace detail

/// How the value of a key is read, written and described.
struct ValueType {
  void (*read)(const Field& field, const Json& json, const std::string& pointer, void* value) = nullptr;
  Json (*write)(const Field& field, const void* value) = nullptr;
  Json (*schema)(const Field& field) = nullptr;
  std::string (*expected)(const Field& field) =
      detail::see_description;  ///< words what a missing key should be
};

/// Losses may be any finite number.
inline constexpr NumberRange kAnyNumber{std::numeric_limits<double>::lowest(),
                                        std::numeric_limits<double>::max()};
inline constexpr NumberRange kPositive{std::numeric_limits<double>::min(), std::numeric_limits<double>::max()};
inline constexpr NumberRange kShare{0, 1};

struct Field {
  std::string_view key;
  const ValueType* type = nullptr;
  void* (*place)(void* object) = nullptr;              ///< where the value is read to
  const void* (*value)(const void* object) = nullptr;  ///< nullptr: it is left out
  bool required = true;
  bool (*read_when)(const void* object) = nullptr;
  bool (*write_when)(const void* object) = nullptr;
  IntegerRange integers = {};
  NumberRange numbers = {};
  Keys keys = {};                                               ///< of an object, or of each object of an array
  void (*check)(void* object, ObjectReader& reader) = nullptr;  ///< in the place of a key
};

/// Unread keys are left to the caller, for ObjectReader::finish() to refuse.
void read_keys(const Keys& keys, ObjectReader& reader, void* object);
Json write_keys(const Keys& keys, const void* object);
/// Documents begin with `format` and `version`; all versions up to the newest are read.
void read_document(const Keys& keys, const Json& json, std::string pointer, void* object);
Json write_document(const Keys& keys, const void* object);
/// For checks: look at an object within, or at each of an array, by limits that other keys set. Above its key
/// in the list a check's messages name these limits alone.
void look_at(ObjectReader& reader, std::string_view key, const std::function<void(ObjectReader&)>& look);
void look_at_each(ObjectReader& reader, std::string_view key, const std::function<void(ObjectReader&)>& look);
/// No key but these; objects within it are `$ref`s.
Json object_schema(const Keys& keys);
/// Those of this object, and of what stands in it, by name.
void add_definitions(const Keys& keys, Json& definitions);

namespace detail {

/// Values that stand at `pointer`, for ObjectReader too. Throw pp::Error (data).
[[noreturn]] void fail_at(const std::string& pointer, const std::string& message);
std::int64_t integer_at(const Json& json, const std::string& pointer, IntegerRange range);
double number_at(const Json& json, const std::string& pointer, NumberRange range);
std::string text_at(const Json& json, const std::string& pointer);
bool boolean_at(const Json& json, const std::string& pointer);
const Json& array_at(const Json& json, const std::string& pointer);
const Json& object_at(const Json& json, const std::string& pointer);
/// `an integer from 0 upwards`
std::string describe(IntegerRange range);
std::string describe(NumberRange range);

}  // namespace detail
}  // namespace pp
