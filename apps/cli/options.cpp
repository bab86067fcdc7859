#include "apps/cli/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

namespace pp::cli {

namespace {

/// `0.05`, as people write it.
std::string short_number(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

Check number_within(double least, double most, const std::string& range) {
  const auto problem = [=](const std::string& text) -> std::string {
    double value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && rest == text.data() + text.size();
    if (whole && std::isfinite(value) && value >= least && value <= most) return "";
    return '"' + text + "\" is not a number " + range;
  };
  return {problem, "NUMBER", "number"};
}

/// `15T`
double parse_many(const std::string& text, const std::string& option) {
  static constexpr std::array<std::pair<std::string_view, double>, 5> kUnits{
      {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}}};
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view typed(rest, text.data() + text.size());
  const auto unit = std::ranges::find(kUnits, typed, &std::pair<std::string_view, double>::first);
  if (error == std::errc() && unit != kUnits.end()) value *= unit->second;
  if (error == std::errc() && unit != kUnits.end() && std::isfinite(value) && value >= 1) return value;
  throw Error(ErrorKind::usage, option + ": \"" + text +
                                    "\" is not a number of at least 1; write for example 300B, 15T or 1.4e13");
}

/// `value`: Bytes, also optional.
template <class Value>
Option add_size(const Command& command, const std::string& name, Value& value, const std::string& summary) {
  const auto take = [&value, name](const std::string& text) { value = parse_bytes(text, name); };
  return command.add_option_function(name, take, summary).type_name("SIZE");
}

}  // namespace

Option add_bytes(const Command& command, const std::string& name, Bytes& value, const std::string& summary) {
  return add_size(command, name, value, summary);
}

Option add_bytes(const Command& command, const std::string& name, std::optional<Bytes>& value,
                 const std::string& summary) {
  return add_size(command, name, value, summary);
}

Option add_seconds(const Command& command, const std::string& name, Seconds& value,
                   const std::string& summary) {
  const auto take = [&value, name](const std::string& text) { value = parse_seconds(text, name); };
  return command.add_option_function(name, take, summary).type_name("TIME");
}

Option add_bandwidth(const Command& command, const std::string& name, BytesPerSecond& value,
                     const std::string& summary) {
  const auto take = [&value, name](const std::string& text) { value = parse_bandwidth(text, name); };
  return command.add_option_function(name, take, summary).type_name("RATE");
}

Option add_many(const Command& command, const std::string& name, std::optional<double>& value,
                const std::string& summary) {
  const auto take = [&value, name](const std::string& text) { value = parse_many(text, name); };
  return command.add_option_function(name, take, summary).type_name("N");
}

Check number_from(double least) {
  return number_within(least, std::numeric_limits<double>::max(), "of at least " + short_number(least));
}

Check number_between(double least, double most) {
  return number_within(least, most, "from " + short_number(least) + " to " + short_number(most));
}

Check whole_number(int least, std::int64_t most) {
  const auto problem = [least, most](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && rest == text.data() + text.size() && value >= least && value <= most) return "";
    const bool open = most == std::numeric_limits<std::int64_t>::max();
    return '"' + text + "\" is not a whole number " +
           (open ? "of at least " + std::to_string(least)
                 : "from " + std::to_string(least) + " to " + std::to_string(most));
  };
  return {problem, "FROM " + std::to_string(least), "whole number"};
}

std::vector<int> parse_counts(const std::string& text, char separator, const std::string& option) {
  std::vector<int> counts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    int value = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc() || rest != text.data() + end || value < 1) {
      throw Error(ErrorKind::usage, option + ": \"" + text.substr(begin, end - begin) +
                                        "\" is not a whole number of at least 1; write for example 1" +
                                        separator + "2");
    }
    counts.push_back(value);
    begin = end + 1;
  }
  return counts;
}

}  // namespace pp::cli
