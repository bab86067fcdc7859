// The keys of a document, each said once: a constexpr list of fields beside the code of the document makes its
// reader, its writer and its JSON Schema.
//   constexpr Object kSwaps{
//       "swaps",
//       key<&SwapsReport::count>("count"),
//       key<&SwapsReport::time>("time_s", {.max = 1e9}),
//       optional<&SwapsReport::remark>("remark"),
//       check<check_swaps>(),
//   };
// The order of the list is that of the file. Types follow from the members: enumerators are names, Bytes and
// Seconds numbers, optionals may lack, vectors are arrays, structs are objects with a list of their own. What
// takes several keys to say is code in a check. Only the .cpp file of a document includes this.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "libprofile/core/fields.h"
#include "libprofile/core/index.h"
#include "libprofile/core/units.h"

namespace pp {

namespace detail {

void read_object(const Keys& keys, const Json& json, const std::string& pointer, void* object);
void read_context(const Json& json, const std::string& pointer, std::map<std::string, std::string>& context);
Json integer_schema(IntegerRange range);
Json number_schema(NumberRange range);
Json names_schema(const std::vector<std::string>& names);

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
struct LeafOf {
  using type = T;
};
template <class T>
struct LeafOf<std::vector<T>> : LeafOf<T> {};

template <class T>
inline constexpr bool is_number = std::same_as<T, double> || std::same_as<T, Seconds>;
template <class Tag>
inline constexpr bool is_number<Quantity<Tag, double>> = true;
/// Numbers of stages and workers are enumerators without names.
template <class T>
inline constexpr bool is_integer = (std::integral<T> && !std::same_as<T, bool>) ||
                                   (std::is_enum_v<T> && !NamedEnum<T>);
template <class Tag>
inline constexpr bool is_integer<Quantity<Tag, std::int64_t>> = true;

template <class T>
void read_value(const Field& field, const Json& json, const std::string& pointer, void* to) {
  T& value = *static_cast<T*>(to);
  if constexpr (std::same_as<T, bool>) {
    value = boolean_at(json, pointer);
  } else if constexpr (std::same_as<T, std::string>) {
    value = text_at(json, pointer);
  } else if constexpr (NamedEnum<T>) {
    const std::string name = text_at(json, pointer);
    const auto found = find_enum<T>(name);
    if (!found) fail_at(pointer, unknown_name(name, all_names<T>()));
    value = *found;
  } else if constexpr (std::integral<T> || std::is_enum_v<T>) {
    value = static_cast<T>(integer_at(json, pointer, field.integers));
  } else if constexpr (is_integer<T>) {
    value = T(integer_at(json, pointer, field.integers));
  } else if constexpr (is_number<T>) {
    value = T(number_at(json, pointer, field.numbers));
  } else if constexpr (is_vector<T>) {
    value.clear();
    for (const Json& element : array_at(json, pointer)) {
      const std::string at = append_pointer(pointer, std::to_string(value.size()));
      read_value<typename T::value_type>(field, element, at, &value.emplace_back());
    }
  } else if constexpr (std::same_as<T, std::map<std::string, std::string>>) {
    read_context(json, pointer, value);
  } else {
    read_object(field.keys, json, pointer, to);
  }
}

template <class T>
Json write_value(const Field& field, const void* from) {
  const T& value = *static_cast<const T*>(from);
  if constexpr (NamedEnum<T>) {
    return name_of(value);
  } else if constexpr (std::is_enum_v<T>) {
    return number(value);
  } else if constexpr (std::same_as<T, Seconds>) {
    return value.count();
  } else if constexpr (requires { value.value; } && (is_integer<T> || is_number<T>)) {
    return value.value;
  } else if constexpr (is_vector<T>) {
    Json json = Json::array();
    for (const auto& element : value) json.push_back(write_value<typename T::value_type>(field, &element));
    return json;
  } else if constexpr (std::constructible_from<Json, const T&> && !std::is_aggregate_v<T>) {
    return Json(value);
  } else {
    return write_keys(field.keys, from);
  }
}

template <class T>
Json value_schema(const Field& field) {
  if constexpr (std::same_as<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::same_as<T, std::string>) {
    return {{"type", "string"}};
  } else if constexpr (NamedEnum<T>) {
    return names_schema(all_names<T>());
  } else if constexpr (is_integer<T>) {
    return integer_schema(field.integers);
  } else if constexpr (is_number<T>) {
    return number_schema(field.numbers);
  } else if constexpr (is_vector<T>) {
    return {{"type", "array"}, {"items", value_schema<typename T::value_type>(field)}};
  } else if constexpr (std::same_as<T, std::map<std::string, std::string>>) {
    return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}};
  } else {
    return {{"$ref", "#/definitions/" + std::string(field.keys.name)}};
  }
}

template <class T>
std::string value_expected(const Field& field) {
  if constexpr (std::same_as<T, bool>) {
    return "true or false";
  } else if constexpr (std::same_as<T, std::string> || NamedEnum<T>) {
    return "a string";
  } else if constexpr (is_integer<T>) {
    return describe(field.integers);
  } else if constexpr (is_number<T>) {
    return describe(field.numbers);
  } else {
    return is_vector<T> ? "an array" : "an object";
  }
}

template <class T>
inline constexpr ValueType kValueType{read_value<T>, write_value<T>, value_schema<T>, value_expected<T>};

template <class Member>
struct OwnerOf;
template <class Class, class Type>
struct OwnerOf<Type Class::*> {
  using type = Class;
};

template <class Check>
struct CheckedBy;
template <class Class>
struct CheckedBy<void (*)(Class&, ObjectReader&)> {
  using type = std::remove_const_t<Class>;
};

/// The member of a member at the end of a path, which makes the optionals on its way.
template <auto First, auto... Rest>
auto& made(auto& object) {
  auto& member = object.*First;
  if constexpr (is_optional<std::remove_cvref_t<decltype(member)>>) {
    if (!member) member.emplace();
    if constexpr (sizeof...(Rest) > 0)
      return made<Rest...>(*member);
    else
      return *member;
  } else if constexpr (sizeof...(Rest) > 0) {
    return made<Rest...>(member);
  } else {
    return member;
  }
}

/// The same; nullptr where an optional on the way is empty.
template <auto First, auto... Rest>
const void* reached(const auto& object) {
  const auto& member = object.*First;
  if constexpr (is_optional<std::remove_cvref_t<decltype(member)>>) {
    if (!member) return nullptr;
    if constexpr (sizeof...(Rest) > 0)
      return reached<Rest...>(*member);
    else
      return &*member;
  } else if constexpr (sizeof...(Rest) > 0) {
    return reached<Rest...>(member);
  } else {
    return &member;
  }
}

template <auto First, auto... Rest>
struct Path {
  using Owner = typename OwnerOf<decltype(First)>::type;
  using Value = std::remove_reference_t<decltype(made<First, Rest...>(std::declval<Owner&>()))>;
  using Leaf = typename LeafOf<Value>::type;  ///< of arrays the elements
  using Range = std::conditional_t<is_number<Leaf>, NumberRange, IntegerRange>;

  static void* place(void* object) { return &made<First, Rest...>(*static_cast<Owner*>(object)); }
  static const void* value(const void* object) {
    return reached<First, Rest...>(*static_cast<const Owner*>(object));
  }
  static const void* unusual_value(const void* object) {
    static const Owner usual{};
    const auto* found = static_cast<const Value*>(value(object));
    const auto* is_usual = static_cast<const Value*>(value(&usual));
    return found && is_usual && *found == *is_usual ? nullptr : found;
  }
};

}  // namespace detail

inline constexpr const ValueType& kText = detail::kValueType<std::string>;

template <class Owner, std::size_t N>
struct Object;
template <class Owner, std::size_t N>
constexpr Keys keys_of(const Object<Owner, N>& object);

/// A key of an `Owner`.
template <class Owner>
struct FieldOf : Field {
  /// For a type of value that has objects within.
  template <class Within, std::size_t N>
  constexpr FieldOf of(const Object<Within, N>& object) const {
    FieldOf field = *this;
    field.keys = keys_of(object);
    return field;
  }
  /// Written only where this holds.
  template <bool (*holds)(const Owner&)>
  constexpr FieldOf written_if() const {
    FieldOf field = *this;
    field.write_when = [](const void* object) { return holds(*static_cast<const Owner*>(object)); };
    return field;
  }
  /// Written and known only where this holds; of a reader, for what the keys before it say.
  template <bool (*holds)(const Owner&)>
  constexpr FieldOf given() const {
    FieldOf field = written_if<holds>();
    field.read_when = field.write_when;
    return field;
  }
};

/// The keys of an `Owner`, after the name of its definition in schemas.
template <class Owner, std::size_t N>
struct Object {
  std::string_view name;
  std::array<FieldOf<Owner>, N> fields;

  template <class... Fields>
  constexpr explicit Object(std::string_view its_name, const Fields&... its_fields)
      : name(its_name), fields{its_fields...} {}
};
template <class Owner, class... More>
Object(std::string_view, FieldOf<Owner>, More...) -> Object<Owner, 1 + sizeof...(More)>;

template <class Owner, std::size_t N>
constexpr Keys keys_of(const Object<Owner, N>& object) {
  static_assert(sizeof(FieldOf<Owner>) == sizeof(Field));
  return {object.name, object.fields.data(), N};
}

namespace detail {

template <class Path>
constexpr auto field(std::string_view key, const void* (*value)(const void*), bool required,
                     const ValueType& type = kValueType<typename Path::Value>) {
  FieldOf<typename Path::Owner> made;
  made.key = key;
  made.type = &type;
  made.place = Path::place;
  made.value = value;
  made.required = required;
  return made;
}
template <class Path>
constexpr auto field(std::string_view key, const void* (*value)(const void*), bool required,
                     typename Path::Range range) {
  auto made = field<Path>(key, value, required);
  if constexpr (is_number<typename Path::Leaf>)
    made.numbers = range;
  else
    made.integers = range;
  if (sizeof(typename Path::Leaf) == sizeof(int))
    made.integers.max = std::min<std::int64_t>(made.integers.max, std::numeric_limits<int>::max());
  return made;
}
template <class Path, class Owner, std::size_t N>
constexpr auto field(std::string_view key, const void* (*value)(const void*), bool required,
                     const Object<Owner, N>& object) {
  static_assert(std::same_as<typename Path::Leaf, Owner>);
  auto made = field<Path>(key, value, required);
  made.keys = keys_of(object);
  return made;
}

}  // namespace detail

/// A key that must be there. `range` is of the number, or of the numbers in an array; other types say it all,
/// objects give their keys, and unusual ones their ValueType.
template <auto... P>
constexpr auto key(std::string_view name, typename detail::Path<P...>::Range range = {}) {
  return detail::field<detail::Path<P...>>(name, detail::Path<P...>::value, true, range);
}
template <auto... P>
constexpr auto key(std::string_view name, const auto& kind) {
  return detail::field<detail::Path<P...>>(name, detail::Path<P...>::value, true, kind);
}

/// A key that is left out where the member has its default.
template <auto... P>
constexpr auto optional(std::string_view name, typename detail::Path<P...>::Range range = {}) {
  return detail::field<detail::Path<P...>>(name, detail::Path<P...>::unusual_value, false, range);
}
template <auto... P>
constexpr auto optional(std::string_view name, const auto& kind) {
  return detail::field<detail::Path<P...>>(name, detail::Path<P...>::unusual_value, false, kind);
}

/// A key that people may leave out, and that is always written.
template <auto... P>
constexpr auto defaulted(std::string_view name, typename detail::Path<P...>::Range range = {}) {
  return detail::field<detail::Path<P...>>(name, detail::Path<P...>::value, false, range);
}
template <auto... P>
constexpr auto defaulted(std::string_view name, const auto& kind) {
  return detail::field<detail::Path<P...>>(name, detail::Path<P...>::value, false, kind);
}

/// A value that several members of the struct make; it may lack.
template <class Owner>
constexpr FieldOf<Owner> whole(std::string_view name, const ValueType& type) {
  FieldOf<Owner> made;
  made.key = name;
  made.type = &type;
  made.place = [](void* owner) { return owner; };
  made.value = [](const void* owner) { return owner; };
  made.required = false;
  return made;
}
/// Some members of the struct, as an object of their own.
template <class Owner, std::size_t N>
constexpr FieldOf<Owner> group(std::string_view name, const Object<Owner, N>& object) {
  FieldOf<Owner> made = whole<Owner>(name, detail::kValueType<Owner>).of(object);
  made.required = true;
  return made;
}

/// Looks at several keys, of which those above it have been read: throws, or sets what follows from them.
template <auto verify>
constexpr auto check() {
  using Owner = typename detail::CheckedBy<decltype(verify)>::type;
  FieldOf<Owner> made;
  made.check = [](void* object, ObjectReader& reader) { verify(*static_cast<Owner*>(object), reader); };
  return made;
}

/// A key that may be there, for a check to look at.
template <class Owner>
constexpr FieldOf<Owner> looked_at(std::string_view name, const ValueType& type) {
  FieldOf<Owner> made;
  made.key = name;
  made.type = &type;
  made.value = [](const void*) -> const void* { return nullptr; };
  made.required = false;
  return made;
}

template <class Owner, std::size_t N>
Json to_json(const Object<Owner, N>& object, const Owner& value) {
  return write_keys(keys_of(object), &value);
}
/// Begins with `format` and `version`.
template <class Owner, std::size_t N>
Json document_json(const Object<Owner, N>& object, const Owner& value) {
  return write_document(keys_of(object), &value);
}
/// All versions up to the newest. Throws pp::Error (data).
template <class Owner, std::size_t N>
Owner document_from_json(const Object<Owner, N>& object, const Json& json, std::string pointer = {}) {
  Owner value;
  read_document(keys_of(object), json, std::move(pointer), &value);
  return value;
}

}  // namespace pp
