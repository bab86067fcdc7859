// What connects two devices.
#pragma once

#include "libprofile/core/units.h"

namespace pp {

/// One direction between two devices. A message occupies the sender's out-port and the receiver's in-port for
/// bytes/bandwidth and arrives latency later, once per tensor.
struct Link {
  BytesPerSecond bandwidth{0};  ///< 0: infinite
  Seconds latency{};
  bool operator==(const Link&) const = default;
};

}  // namespace pp
