// Options whose values are quantities, enums or lists; the texts of libprofile/core are the messages.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/units.h"

namespace pp::cli {

template <NamedEnum E>
CLI::Option* add_enum(CLI::App& command, const std::string& name, E& value, const std::string& summary) {
  return command
      .add_option_function<std::string>(
          name,
          [&value, name](const std::string& text) { value = parse_enum<E>(text, name, ErrorKind::usage); },
          summary + ": " + list_names<E>())
      ->type_name("NAME")
      ->default_str(std::string(name_of(value)));
}

inline CLI::Option* add_bytes(CLI::App& command, const std::string& name, Bytes& value,
                              const std::string& summary) {
  return command
      .add_option_function<std::string>(
          name, [&value, name](const std::string& text) { value = parse_bytes(text, name); }, summary)
      ->type_name("SIZE");
}

inline CLI::Option* add_seconds(CLI::App& command, const std::string& name, Seconds& value,
                                const std::string& summary) {
  return command
      .add_option_function<std::string>(
          name, [&value, name](const std::string& text) { value = parse_seconds(text, name); }, summary)
      ->type_name("TIME");
}

inline CLI::Option* add_bandwidth(CLI::App& command, const std::string& name, BytesPerSecond& value,
                                  const std::string& summary) {
  return command
      .add_option_function<std::string>(
          name, [&value, name](const std::string& text) { value = parse_bandwidth(text, name); }, summary)
      ->type_name("RATE");
}

/// An option's check: its text is a whole number from `least` upwards, or to `most`.
CLI::Validator whole_number(int least, std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// A number from `least` upwards, or from `least` to `most`; not infinite.
CLI::Validator number_from(double least);
CLI::Validator number_between(double least, double most);

/// `1,2,4` or `3-1` into whole numbers >= 1. Throws pp::Error (usage) that names the option and the part.
std::vector<int> parse_counts(const std::string& text, char separator, const std::string& option);

}  // namespace pp::cli
