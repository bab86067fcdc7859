// Names, ranges and settings of options, by their rows.
#include "libprofile/core/options.h"

#include <algorithm>
#include <cmath>
#include <system_error>

namespace pp {

namespace {

using Kind = OptionType::Kind;

/// `0.05`, `1000000`, as people write it.
std::string short_number(double value) {
  std::array<char, 32> text{};
  const bool whole = value == std::trunc(value) && std::abs(value) < 1e15;
  return {text.data(),
          whole ? std::to_chars(text.data(), text.data() + text.size(), static_cast<std::int64_t>(value)).ptr
                : std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

bool within(const OptionRow& row, double value) {
  return std::isfinite(value) && (row.above ? value > row.least : value >= row.least) &&
         (row.below ? value < row.most : value <= row.most);
}

bool within(const OptionRow& row, const OptionValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return within(row, static_cast<double>(*whole));
  const auto* real = std::get_if<double>(&value);
  return real == nullptr || within(row, *real);
}

bool is_zero(const OptionValue& value) {
  return value == OptionValue(std::int64_t{0}) || value == OptionValue(0.0);
}

bool bounded_below(const OptionRow& row) { return row.least > std::numeric_limits<double>::lowest(); }
bool bounded_above(const OptionRow& row) { return row.most < detail::kMostInt; }

template <class T>
bool reads(const std::string& text, T& value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && rest == text.data() + text.size();
}

/// `0.05`, `60 s`, `auto`
std::string shown(const OptionRow& row, const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (std::holds_alternative<bool>(value)) return "";
  const auto* whole = std::get_if<std::int64_t>(&value);
  if (row.type->kind == Kind::size) return to_text(Bytes(*whole));
  if (whole) return std::to_string(*whole);
  const double number = std::get<double>(value);
  if (row.type->kind == Kind::time) return to_text(Seconds(number));
  if (row.type->kind == Kind::rate) return to_text(BytesPerSecond(number));
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

/// `in [0, 1)`, `above 0`; empty: other words say it.
std::string half_open(const OptionRow& row) {
  if (row.above) return "above " + short_number(row.least);
  return row.below ? "in [" + short_number(row.least) + ", " + short_number(row.most) + ")" : "";
}

}  // namespace

std::string name_of(const OptionRow& row) {
  const std::size_t begin = std::min(row.names.find("--"), row.names.size());
  const std::string_view name = begin == row.names.size() ? row.names : row.names.substr(begin);
  return std::string(name.substr(0, name.find(',')));
}

std::string key_of(const OptionRow& row) {
  if (!row.recorded_as.empty()) return std::string(row.recorded_as);
  std::string key = name_of(row).substr(2);
  if (row.names.starts_with("!--no-")) key.erase(0, 3);
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string problem_of(const OptionRow& row, const std::string& text) {
  const bool whole = row.type->kind == Kind::whole;
  std::int64_t integer = 0;
  double number = 0;
  if (whole ? reads(text, integer) && within(row, static_cast<double>(integer))
            : reads(text, number) && within(row, number))
    return "";
  std::string range = half_open(row);
  if (range.empty() && bounded_below(row))
    range = bounded_above(row) ? "from " + short_number(row.least) + " to " + short_number(row.most)
                               : "of at least " + short_number(row.least);
  return '"' + text + "\" is not a " + (whole ? "whole number" : "number") + (range.empty() ? "" : " " + range);
}

std::string_view value_word(const OptionRow& row) {
  if (!row.value.empty()) return row.value;
  switch (row.type->kind) {
    case Kind::flag: return "";
    case Kind::whole: return "INT";
    case Kind::number: return "FLOAT";
    case Kind::name: return "NAME";
    case Kind::time: return "TIME";
    case Kind::size: return "SIZE";
    case Kind::rate: return "RATE";
    default: return "TEXT";
  }
}

std::string standard_of(const OptionRow& row, const void* options) {
  if (!row.standard.empty() || !row.type->value) return std::string(row.standard);
  const std::optional<OptionValue> value = row.type->value(row.field(const_cast<void*>(options)));
  const bool quantity =
      row.type->kind == Kind::time || row.type->kind == Kind::size || row.type->kind == Kind::rate;
  const bool unset = !value || !within(row, *value) || (quantity && is_zero(*value));
  return unset ? "" : shown(row, *value);
}

namespace detail {

void read_text(const std::string& text, const std::string& /*name*/, std::string& value) { value = text; }
void read_text(const std::string& text, const std::string& /*name*/, std::filesystem::path& value) {
  value = text;
}
void read_text(const std::string& text, const std::string& name, Seconds& value) {
  value = parse_seconds(text, name);
}
void read_text(const std::string& text, const std::string& name, Bytes& value) {
  value = parse_bytes(text, name);
}
void read_text(const std::string& text, const std::string& name, BytesPerSecond& value) {
  value = parse_bandwidth(text, name);
}

void check_range(const OptionRow& row, const void* options) {
  if (!row.type->value || !row.given(options)) return;
  const std::optional<OptionValue> value = row.type->value(row.field(const_cast<void*>(options)));
  if (!value || within(row, *value)) return;
  std::string limits = half_open(row);
  if (limits.empty() && bounded_above(row))
    limits = short_number(row.least) + " to " + short_number(row.most);
  else if (limits.empty())
    limits = row.type->kind == Kind::whole ? "at least " + short_number(row.least)
                                           : short_number(row.least) + " or more";
  const bool plain = row.type->kind == Kind::whole || row.type->kind == Kind::number;
  refuse(ErrorKind::usage,
         (plain ? key_of(row) + " = " : name_of(row) + " ") + shown(row, *value) + ": must be " + limits);
}

void add_setting(const OptionRow& row, const void* options, std::map<std::string, OptionValue>& settings) {
  if (row.recorded == Recorded::no || (row.recorded_if && !row.recorded_if(options))) return;
  if (!row.recorded_always && !row.given(options)) return;
  if (std::optional<OptionValue> value = row.type->value(row.field(const_cast<void*>(options))))
    settings[key_of(row)] = std::move(*value);
}

}  // namespace detail
}  // namespace pp
