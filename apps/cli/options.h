// Options whose values are quantities, enums or lists; the texts of libprofile/core are the messages.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/command.h"
#include "libprofile/core/enum_names.h"
#include "libprofile/core/tensor_type.h"
#include "libprofile/core/units.h"

namespace pp::cli {

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
  for (const auto& [value, alias] : Aliases<E>::table) {
    if (alias == text) return value;
  }
  return parse_enum<E>(text, option, ErrorKind::usage);
}

template <NamedEnum E>
Option add_enum(const Command& command, const std::string& name, E& value, const std::string& summary) {
  return command
      .add_option_function(
          name, [&value, name](const std::string& text) { value = typed_name<E>(text, name); },
          summary + ": " + list_names<E>())
      .type_name("NAME")
      .choices(all_names<E>())
      .default_str(std::string(name_of(value)));
}

Option add_bytes(const Command& command, const std::string& name, Bytes& value, const std::string& summary);
Option add_bytes(const Command& command, const std::string& name, std::optional<Bytes>& value,
                 const std::string& summary);
Option add_seconds(const Command& command, const std::string& name, Seconds& value, const std::string& summary);
Option add_bandwidth(const Command& command, const std::string& name, BytesPerSecond& value,
                     const std::string& summary);

/// Things in thousands (K), millions (M), billions (B) or trillions (T), or as they are: `15T`, `1.4e13`; at
/// least 1.
Option add_many(const Command& command, const std::string& name, std::optional<double>& value,
                const std::string& summary);

/// An option's check: its text is a whole number from `least` upwards, or to `most`.
Check whole_number(int least, std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// A number from `least` upwards, or from `least` to `most`; not infinite.
Check number_from(double least);
Check number_between(double least, double most);

/// `1,2,4` or `3-1` into whole numbers >= 1. Throws pp::Error (usage) that names the option and the part.
std::vector<int> parse_counts(const std::string& text, char separator, const std::string& option);

}  // namespace pp::cli
