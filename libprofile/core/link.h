// What connects two devices.
#pragma once

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
struct Link {
  BytesPerSecond bandwidth{0};  ///< 0: infinite
  Seconds latency{};
  Seconds message_cost{};
  double overlap = 1;
  Duplex duplex = Duplex::full;
  bool operator==(const Link&) const = default;
};

}  // namespace pp
