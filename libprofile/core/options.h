// The options of a command, a row each: names, field, what it does, what it may be, and what a document says of
// it. The reader of a command line, help, completion and manual, the checks of ranges, and the settings in
// reports and checkpoints are made of the rows.
//   const auto kOptions = options(
//       option<&RunOptions::seed>("--seed", "of initial weights", {.group = "Training", .least = 0}),
//       option<&RunOptions::steps>("--steps", "optimizer steps", {.least = 1, .not_with = "--epochs"}));
// A default is the field's own. A row without a group is in that of the row above it.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/tensor_type.h"
#include "libprofile/core/units.h"

namespace pp {

struct OptionRow;

/// As documents have it.
using OptionValue = std::variant<bool, std::int64_t, double, std::string>;

/// Whether documents carry an option as a setting.
enum class Recorded {
  no,
  told,     ///< for people
  compared  ///< what is trained depends on it: a run that goes on from a checkpoint is warned of another value
};

inline constexpr std::string_view kNotInHelp = "-";  ///< a group

struct OptionFacts {
  std::string_view group = {};  ///< in the help
  std::string_view value = {};  ///< what the help calls its value; empty: by its type
  /// The range of a number. `above`: more than `least`; `below`: less than `most`.
  double least = std::numeric_limits<double>::lowest();
  double most = std::numeric_limits<double>::max();
  bool above = false, below = false;
  bool required = false;
  std::string_view not_with = {};  ///< other options, which the command has before it: `plan,--csv`
  std::string_view standard = {};  ///< said of what it is unless given, where that is no default of the field
  std::vector<std::string> (*values)() = nullptr;  ///< all its values, where the type does not say them
  char separator = 0;  ///< of values in one argument; 0: the option is given once for each
  Recorded recorded = Recorded::no;
  bool recorded_always = false;       ///< also where it has its default
  std::string_view recorded_as = {};  ///< the name of the setting; empty: the option's, `lr_min` of `--lr-min`
  bool (*recorded_if)(const void* options) = nullptr;
  /// The weight policies of a training that read it, as a sentence lists them.
  std::string_view read_by = {};
  /// What all workers of a training find together before an update, because it is given.
  std::string_view found_together = {};
};

struct OptionType {
  enum class Kind { text, flag, list, whole, number, name, time, size, rate };
  Kind kind = Kind::text;
  /// Throws pp::Error (usage); a number has been looked at by problem_of().
  void (*read)(const OptionRow& row, const std::string& text, void* field) = nullptr;
  std::optional<OptionValue> (*value)(const void* field) = nullptr;  ///< nothing: it is not given
  std::vector<std::string> (*choices)() = nullptr;                   ///< all its values; nullptr: too many
};

struct OptionRow : OptionFacts {
  /// `-o,--output`; without dashes an argument; a flag `!--no-x` sets false.
  std::string_view names;
  std::string_view help;
  const OptionType* type = nullptr;
  void* (*field)(void* options) = nullptr;
  bool (*given)(const void* options) = nullptr;  ///< whether it has another value than its default
};

/// The row of a field of `Owner`.
template <class Class>
struct OptionOf : OptionRow {
  using Owner = Class;
};

/// `--output`: the first long one of its names.
std::string name_of(const OptionRow& row);
/// The name of its setting: `lr_min`.
std::string key_of(const OptionRow& row);
/// What the help calls its value: `FLOAT`; of a flag nothing.
std::string_view value_word(const OptionRow& row);
/// What it is unless given, for people; empty: nothing.
std::string standard_of(const OptionRow& row, const void* options);
/// What is wrong with the text of a number; empty: nothing.
std::string problem_of(const OptionRow& row, const std::string& text);

/// Second names that people type and no document has.
template <NamedEnum E>
struct Aliases {
  static constexpr std::array<std::pair<E, std::string_view>, 0> table{};
};
template <>
struct Aliases<DType> {
  static constexpr std::array table{std::pair{DType::float32, "fp32"sv}, std::pair{DType::float64, "fp64"sv},
                                    std::pair{DType::bfloat16, "bf16"sv}};
};
template <>
struct Aliases<Autocast> {
  static constexpr std::array table{std::pair{Autocast::bfloat16, "bf16"sv},
                                    std::pair{Autocast::float16, "fp16"sv}};
};

/// The value that was typed for `option`. Throws as parse_enum() where there is none.
template <NamedEnum E>
E typed_name(const std::string& text, const std::string& option) {
  for (const auto& [value, alias] : Aliases<E>::table)
    if (alias == text) return value;
  return parse_enum<E>(text, option, ErrorKind::usage);
}

namespace detail {

inline constexpr double kMostInt = std::numeric_limits<int>::max();

void check_range(const OptionRow& row, const void* options);
void add_setting(const OptionRow& row, const void* options, std::map<std::string, OptionValue>& settings);

void read_text(const std::string& text, const std::string& name, std::string& value);
void read_text(const std::string& text, const std::string& name, std::filesystem::path& value);
void read_text(const std::string& text, const std::string& name, Seconds& value);
void read_text(const std::string& text, const std::string& name, Bytes& value);
void read_text(const std::string& text, const std::string& name, BytesPerSecond& value);
template <NamedEnum E>
void read_text(const std::string& text, const std::string& name, E& value) {
  value = typed_name<E>(text, name);
}
template <class Number>
requires std::is_arithmetic_v<Number>
void read_text(const std::string& text, const std::string& /*name*/, Number& value) {
  std::from_chars(text.data(), text.data() + text.size(), value);
}

inline OptionValue told(bool value) { return value; }
inline OptionValue told(std::int64_t value) { return value; }
inline OptionValue told(int value) { return std::int64_t{value}; }
inline OptionValue told(std::uint64_t value) { return std::to_string(value); }  // may be beyond int64
inline OptionValue told(double value) { return value; }
inline OptionValue told(const std::string& value) { return value; }
inline OptionValue told(const std::filesystem::path& value) { return value.string(); }
inline OptionValue told(Seconds value) { return value.count(); }
inline OptionValue told(Bytes value) { return value.value; }
inline OptionValue told(BytesPerSecond value) { return value.value; }
template <NamedEnum E>
OptionValue told(E value) {
  return std::string(name_of(value));
}

template <class T>
inline constexpr OptionType::Kind kKind = NamedEnum<T>                      ? OptionType::Kind::name
                                          : std::same_as<T, bool>           ? OptionType::Kind::flag
                                          : std::integral<T>                ? OptionType::Kind::whole
                                          : std::same_as<T, double>         ? OptionType::Kind::number
                                          : std::same_as<T, Seconds>        ? OptionType::Kind::time
                                          : std::same_as<T, Bytes>          ? OptionType::Kind::size
                                          : std::same_as<T, BytesPerSecond> ? OptionType::Kind::rate
                                                                            : OptionType::Kind::text;

template <class T>
inline constexpr OptionType kOptionType{
    .kind = kKind<T>,
    .read = [](const OptionRow& row, const std::string& text,
               void* field) { read_text(text, name_of(row), *static_cast<T*>(field)); },
    .value = [](const void* field) { return std::optional(told(*static_cast<const T*>(field))); },
    .choices =
        [] {
          if constexpr (NamedEnum<T>)
            return all_names<T>;
          else
            return nullptr;
        }()};
template <class T>
inline constexpr OptionType kOptionType<std::optional<T>>{
    .kind = kKind<T>,
    .read =
        [](const OptionRow& row, const std::string& text, void* field) {
          read_text(text, name_of(row), static_cast<std::optional<T>*>(field)->emplace());
        },
    .value =
        [](const void* field) {
          const auto& value = *static_cast<const std::optional<T>*>(field);
          return value ? std::optional(told(*value)) : std::nullopt;
        },
    .choices = kOptionType<T>.choices};
template <>
inline constexpr OptionType kOptionType<bool>{.kind = OptionType::Kind::flag, .value = [](const void* field) {
                                                return std::optional(told(*static_cast<const bool*>(field)));
                                              }};
template <>
inline constexpr OptionType kOptionType<std::vector<std::string>>{.kind = OptionType::Kind::list};

template <class Member>
struct OwnerOfMember;
template <class Class, class Type>
struct OwnerOfMember<Type Class::*> {
  using type = Class;
};
/// `Owner` of `bool (const Owner&)`, `void (Owner&, const std::string&)`.
template <class Function>
struct OwnerOfFunction;
template <class Result, class Class, class... More>
struct OwnerOfFunction<Result (*)(Class&, More...)> {
  using type = std::remove_const_t<Class>;
};
template <auto function>
using Asked = typename OwnerOfFunction<decltype(function)>::type;

template <auto First, auto... Rest>
auto& member_of(auto& object) {
  if constexpr (sizeof...(Rest) > 0)
    return member_of<Rest...>(object.*First);
  else
    return object.*First;
}

template <auto take, auto tell>
inline constexpr OptionType kParsed{
    .read = [](const OptionRow&, const std::string& text,
               void* options) { take(*static_cast<Asked<take>*>(options), text); },
    .value = [](const void* options) -> std::optional<OptionValue> {
      if constexpr (std::is_same_v<decltype(tell), std::nullptr_t>)
        return std::nullopt;
      else
        return tell(*static_cast<const Asked<take>*>(options));
    }};

}  // namespace detail

/// An option that sets a member, or a member of a member, which may be optional.
template <auto First, auto... Rest>
constexpr auto option(std::string_view names, std::string_view help, OptionFacts facts = {}) {
  using Owner = typename detail::OwnerOfMember<decltype(First)>::type;
  using Member = std::remove_reference_t<decltype(detail::member_of<First, Rest...>(std::declval<Owner&>()))>;
  OptionOf<Owner> row{{facts, names, help, &detail::kOptionType<Member>}};
  row.field = [](void* options) -> void* {
    return &detail::member_of<First, Rest...>(*static_cast<Owner*>(options));
  };
  row.given = [](const void* options) {
    static const Owner unasked{};
    return detail::member_of<First, Rest...>(*static_cast<const Owner*>(options)) !=
           detail::member_of<First, Rest...>(unasked);
  };
  const bool small = std::is_same_v<Member, int> || std::is_same_v<Member, std::optional<int>>;
  if (small && row.most > detail::kMostInt) row.most = detail::kMostInt;
  return row;
}

/// An option whose text `take` reads into one member or several: `void take(Owner&, const std::string&)`. What
/// documents say of it: `std::optional<OptionValue> tell(const Owner&)`, nothing where it is not given.
template <auto take, auto tell = nullptr>
constexpr auto parsed(std::string_view names, std::string_view help, OptionFacts facts = {}) {
  OptionOf<detail::Asked<take>> row{{facts, names, help, &detail::kParsed<take, tell>}};
  row.field = [](void* options) { return options; };
  row.given = [](const void* options) { return detail::kParsed<take, tell>.value(options).has_value(); };
  return row;
}

/// For `recorded_if`: `bool holds(const Owner&)`.
template <auto holds>
bool where(const void* options) {
  return holds(*static_cast<const detail::Asked<holds>*>(options));
}

template <class Owner, class... More>
constexpr std::array<OptionOf<Owner>, 1 + sizeof...(More)> options(const OptionOf<Owner>& first,
                                                                   const More&... more) {
  std::array<OptionOf<Owner>, 1 + sizeof...(More)> rows{first, more...};
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].group.empty()) rows[i].group = rows[i - 1].group;
  return rows;
}

template <class Owner>
using OptionRows = std::span<const OptionOf<Owner>>;
/// What the rows of an array or span are fields of.
template <class Rows>
using OwnerOf = typename Rows::value_type::Owner;

/// Throws pp::Error (usage): `lr_min = -1: must be 0 or more`.
template <class Rows>
void check_ranges(const Rows& rows, const OwnerOf<Rows>& options) {
  for (const OptionRow& row : rows) detail::check_range(row, &options);
}

/// The first one that is given; nullptr: none is.
template <class Rows>
const OptionRow* first_given(const Rows& rows, const OwnerOf<Rows>& options) {
  for (const OptionRow& row : rows)
    if (row.given(&options)) return &row;
  return nullptr;
}

/// What documents say of the options, by the names of their settings.
template <class Rows>
void add_settings(const Rows& rows, const OwnerOf<Rows>& options,
                  std::map<std::string, OptionValue>& settings) {
  for (const OptionRow& row : rows) detail::add_setting(row, &options, settings);
}

}  // namespace pp
