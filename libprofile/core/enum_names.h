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

#include "libprofile/core/error.h"

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

/// Throws pp::Error of `kind`: `what: unknown name "x"; use one of a, b, c`.
template <NamedEnum E>
E parse_enum(std::string_view name, std::string_view what, ErrorKind kind) {
  if (auto value = find_enum<E>(name)) return *value;
  throw Error(
      kind, std::string(what) + ": unknown name \"" + std::string(name) + "\"; use one of " + list_names<E>());
}

}  // namespace pp
