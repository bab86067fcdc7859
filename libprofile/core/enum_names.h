// One constexpr table of names per enum, shared by JSON, the command line, messages and --help:
//   template <> struct EnumNames<Colour> { static constexpr std::array table{std::pair{Colour::red, "red"sv},
//   ...}; };
#pragma once

#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/text.h"

namespace pp {

using namespace std::string_view_literals;

template <class E>
struct EnumNames;

template <class E>
concept NamedEnum = requires {
  EnumNames<E>::table.size();
};

template <NamedEnum E>
constexpr std::string_view name_of(E value) {
  for (const auto& [candidate, name] : EnumNames<E>::table) {
    if (candidate == value) return name;
  }
  return "?";
}

template <NamedEnum E>
constexpr std::optional<E> find_enum(std::string_view name) {
  for (const auto& [value, candidate] : EnumNames<E>::table) {
    if (candidate == name) return value;
  }
  return std::nullopt;
}

/// `a, b, c`: what messages and --help show.
template <NamedEnum E>
std::string list_names() {
  std::string list;
  for (const auto& [value, name] : EnumNames<E>::table) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

template <NamedEnum E>
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const auto& [value, name] : EnumNames<E>::table) names.emplace_back(name);
  return names;
}

/// Throws pp::Error of `kind`: `what: unknown name "x"; did you mean a? Use one of a, b, c`.
template <NamedEnum E>
E parse_enum(std::string_view name, std::string_view what, ErrorKind kind) {
  if (auto value = find_enum<E>(name)) return *value;
  throw Error(kind, std::string(what) + ": " + unknown_name(name, all_names<E>()));
}

}  // namespace pp
