// What connects two devices, and what one message over it costs.
#pragma once

#include <algorithm>
#include <tuple>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/units.h"

namespace pp {

/// `half`: a device has one port, which serves both directions in turn.
enum class Duplex { full, half };
template <>
struct EnumNames<Duplex> {
  static constexpr std::array table{std::pair{Duplex::full, "full"sv}, std::pair{Duplex::half, "half"sv}};
};

/// One direction between two devices. A message occupies the sender's out-port and the receiver's in-port for
/// bytes/bandwidth and arrives latency later, once per tensor. The devices at both ends are kept from their own
/// work for message_cost per tensor (the overhead o of LogP: Culler et al., PPoPP 1993) and for the share
/// 1 - overlap of bytes/bandwidth.
///
/// Between cores, what exceeds their caches is slower: `beyond` is the bandwidth of the bytes past `cached`.
struct Link {
  BytesPerSecond bandwidth{0};  ///< 0: infinite
  Seconds latency{};
  Seconds message_cost{};
  double overlap = 1;
  Duplex duplex = Duplex::full;
  Bytes cached{0};
  BytesPerSecond beyond{0};  ///< 0: all bytes are alike
  Bytes bucket{0};           ///< sums are of so many bytes at a time, each with its latencies; 0: of all
  bool operator==(const Link&) const = default;
};

/// Seconds that a byte past `cached` takes longer than one before it.
inline double excess_per_byte(const Link& link) {
  if (link.beyond.value == 0 || link.bandwidth.value == 0) return 0;
  return std::max(0.0, 1 / link.beyond.value - 1 / link.bandwidth.value);
}

/// Seconds an x-byte message occupies the ports at both ends; latency comes on top and occupies nothing.
inline double occupancy(double bytes, const Link& link) {
  if (link.bandwidth.value == 0) return 0;
  const double time = bytes / link.bandwidth.value;
  if (link.beyond.value == 0) return time;
  return time + std::max(0.0, bytes - static_cast<double>(link.cached.value)) * excess_per_byte(link);
}

/// Until the last byte has arrived: latency once per message.
inline double transfer_time(double bytes, int messages, const Link& link) {
  return messages * link.latency.count() + occupancy(bytes, link);
}

/// What the message keeps the device at either end from its own work.
inline double handling_time(double bytes, int tensors, const Link& link) {
  return tensors * link.message_cost.count() + (1 - link.overlap) * occupancy(bytes, link);
}

/// Whether that is ever more than nothing.
inline bool asks_devices(const Link& link) { return link.message_cost > Seconds{} || link.overlap < 1; }

/// By bandwidth, then latency, then what messages ask of the devices, then what exceeds the caches.
inline bool is_better(const Link& link, const Link& than) {
  const auto rank = [](const Link& l) {
    return std::tuple(l.bandwidth, -l.latency, -l.message_cost, l.overlap, l.duplex == Duplex::full,
                      -excess_per_byte(l), l.cached);
  };
  return rank(link) > rank(than);
}

}  // namespace pp
