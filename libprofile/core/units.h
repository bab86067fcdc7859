// Physical quantities of the documents and the cost model, and how a time varies. Seconds are std::chrono
// durations of double; bytes and rates are Quantity<Tag, Rep>, so that only meaningful mixes compile (Bytes
// / BytesPerSecond is Seconds).
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace pp {

/// Where a document comes from (its key `context`): tool, version, host, device, libraries, threads, time. Free
/// text, which never changes what a tool does with the document, except for warnings.
using Context = std::map<std::string, std::string>;

using Seconds = std::chrono::duration<double>;

template <class Tag, class Rep>
struct Quantity {
  Rep value{};

  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep v) : value(v) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity o) { return value += o.value, *this; }
  constexpr Quantity& operator-=(Quantity o) { return value -= o.value, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value + b.value); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value - b.value); }
  friend constexpr Quantity operator*(Quantity a, Rep n) { return Quantity(a.value * n); }
  friend constexpr Quantity operator*(Rep n, Quantity a) { return Quantity(n * a.value); }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Flops = Quantity<struct FlopsTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;

constexpr Seconds operator/(Bytes bytes, BytesPerSecond rate) {
  return Seconds(static_cast<double>(bytes.value) / rate.value);
}

/// `16GiB`, `1.5MB`, `4096`: binary and decimal suffixes with their own meaning (GB is 1e9). Throws pp::Error
/// (usage) that names `what` and lists the suffixes; a fraction of a byte is rounded down.
Bytes parse_bytes(std::string_view text, std::string_view what);
/// `250ms`, `3us`, `1.5s`, `2min`; a bare number is seconds. Throws pp::Error (usage).
Seconds parse_seconds(std::string_view text, std::string_view what);
/// `1e9`, `10GB/s`, `25GiB/s`, `100Gbit/s`; a bare number is bytes per second. Throws pp::Error (usage) unless
/// > 0.
BytesPerSecond parse_bandwidth(std::string_view text, std::string_view what);

/// For people: three significant digits and the unit that fits (`12.3 ms`, `1.31 GiB`, `2.5 GB/s`). Files never
/// use these.
std::string to_text(Seconds time);
std::string to_text(Bytes bytes);
std::string to_text(BytesPerSecond rate);

/// Spread of one measured time: how far its 16th and its 84th percentile lie from the median. It is drawn as
/// median + shift + (z < 0 ? below : above) z, z standard normal: two half normals that meet. `shift`: of a sum
/// of several times, whose median is not the sum of their medians; else 0.
struct Spread {
  Seconds below{}, above{};
  Seconds shift{};
  /// What the mean is beyond the median, or the sum of medians.
  Seconds mean() const { return shift + skew(); }
  /// The part of it that comes from unequal halves: (above - below) / sqrt(2 pi).
  Seconds skew() const { return (above - below) * 0.3989422804014327; }
  bool operator==(const Spread&) const = default;
};

/// The spread of `factor` times as long a time.
inline Spread operator*(const Spread& spread, double factor) {
  return {spread.below * factor, spread.above * factor, spread.shift * factor};
}

/// The spread of the sum of two times that vary independently: squares of distances add up, and so do means.
Spread operator+(const Spread& a, const Spread& b);

}  // namespace pp
