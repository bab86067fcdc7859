#include "libprofile/core/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "libprofile/core/error.h"

namespace pp {

namespace {

using namespace std::string_view_literals;

struct Unit {
  std::string_view suffix;
  double factor;
};

constexpr double kKi = 1024.0, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;

constexpr std::array kByteUnits{Unit{""sv, 1},      Unit{"B"sv, 1},     Unit{"kB"sv, 1e3},  Unit{"MB"sv, 1e6},
                                Unit{"GB"sv, 1e9},  Unit{"TB"sv, 1e12}, Unit{"KiB"sv, kKi}, Unit{"MiB"sv, kMi},
                                Unit{"GiB"sv, kGi}, Unit{"TiB"sv, kTi}};
constexpr std::array kTimeUnits{Unit{""sv, 1},  Unit{"ns"sv, 1e-9}, Unit{"us"sv, 1e-6}, Unit{"ms"sv, 1e-3},
                                Unit{"s"sv, 1}, Unit{"min"sv, 60},  Unit{"h"sv, 3600}};
constexpr std::array kRateUnits{Unit{""sv, 1},           Unit{"B/s"sv, 1},        Unit{"kB/s"sv, 1e3},
                                Unit{"MB/s"sv, 1e6},     Unit{"GB/s"sv, 1e9},     Unit{"TB/s"sv, 1e12},
                                Unit{"KiB/s"sv, kKi},    Unit{"MiB/s"sv, kMi},    Unit{"GiB/s"sv, kGi},
                                Unit{"Mbit/s"sv, 125e3}, Unit{"Gbit/s"sv, 125e6}, Unit{"Mb/s"sv, 125e3},
                                Unit{"Gb/s"sv, 125e6},   Unit{"Mbps"sv, 125e3},   Unit{"Gbps"sv, 125e6}};

/// `1.5 GiB` -> 1.5 * 2^30; nothing when the number or the suffix is not one. Finite.
std::optional<double> parse_scaled(std::string_view text, std::span<const Unit> units) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
  std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  if (suffix.starts_with(' ')) suffix.remove_prefix(1);
  for (const Unit& unit : units) {
    if (unit.suffix == suffix && std::isfinite(value * unit.factor)) return value * unit.factor;
  }
  return std::nullopt;
}

[[noreturn]] void refuse(std::string_view text, std::string_view what, std::string_view problem) {
  throw Error(ErrorKind::usage,
              std::string(what) + ": \"" + std::string(text) + "\" is not " + std::string(problem));
}

/// Three significant digits in the largest of `units` (ascending) that leaves at least 1; the smallest one
/// otherwise.
std::string scaled_text(double value, std::span<const Unit> units) {
  const double size = std::abs(value);
  std::size_t pick = 0;
  // 999.6 rounds to 1000: the next unit says it in three digits.
  while (pick + 1 < units.size() && size >= 999.5 * units[pick].factor) ++pick;
  const double scaled = value / units[pick].factor;
  std::array<char, 48> text{};
  const bool whole = std::abs(scaled) >= 999.5 && std::abs(scaled) < 1e6;
  std::snprintf(text.data(), text.size(), whole ? "%.0f " : "%.3g ", scaled);
  return text.data() + std::string(units[pick].suffix);
}

}  // namespace

Bytes parse_bytes(std::string_view text, std::string_view what) {
  const auto value = parse_scaled(text, kByteUnits);
  constexpr double kLimit = 9.2e18;  // below 2^63
  if (!value || *value < 0 || *value > kLimit) {
    refuse(text, what,
           "a size; write a number with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of "
           "1024)");
  }
  return Bytes(static_cast<std::int64_t>(*value));
}

Seconds parse_seconds(std::string_view text, std::string_view what) {
  const auto value = parse_scaled(text, kTimeUnits);
  if (!value || *value < 0) refuse(text, what, "a time; write a number with ns, us, ms, s, min or h");
  return Seconds(*value);
}

BytesPerSecond parse_bandwidth(std::string_view text, std::string_view what) {
  const auto value = parse_scaled(text, kRateUnits);
  if (!value || *value <= 0) {
    refuse(text, what,
           "a bandwidth above 0; write a number with B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, "
           "or, in bits, Mbit/s, Gbit/s (also Mb/s, Gb/s, Mbps, Gbps)");
  }
  return BytesPerSecond(*value);
}

std::string to_text(Seconds time) {
  static constexpr std::array kUnits{Unit{"ns"sv, 1e-9}, Unit{"us"sv, 1e-6}, Unit{"ms"sv, 1e-3},
                                     Unit{"s"sv, 1},     Unit{"min"sv, 60},  Unit{"h"sv, 3600}};
  if (time.count() == 0) return "0 s";
  return scaled_text(time.count(), kUnits);
}

std::string to_text(Bytes bytes) {
  static constexpr std::array kUnits{Unit{"KiB"sv, kKi}, Unit{"MiB"sv, kMi}, Unit{"GiB"sv, kGi},
                                     Unit{"TiB"sv, kTi}};
  if (std::abs(static_cast<double>(bytes.value)) < kKi) return std::to_string(bytes.value) + " B";
  return scaled_text(static_cast<double>(bytes.value), kUnits);
}

std::string to_text(BytesPerSecond rate) {
  static constexpr std::array kUnits{Unit{"B/s"sv, 1}, Unit{"kB/s"sv, 1e3}, Unit{"MB/s"sv, 1e6},
                                     Unit{"GB/s"sv, 1e9}, Unit{"TB/s"sv, 1e12}};
  return scaled_text(rate.value, kUnits);
}

Spread operator+(const Spread& a, const Spread& b) {
  Spread sum{Seconds(std::hypot(a.below.count(), b.below.count())),
             Seconds(std::hypot(a.above.count(), b.above.count())),
             {}};
  sum.shift = a.mean() + b.mean() - sum.skew();
  return sum;
}

}  // namespace pp
