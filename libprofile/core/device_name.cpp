#include "libprofile/core/device_name.h"

#include <algorithm>

namespace pp {

std::string device_name(std::span<const Device> devices, const Device& device) {
  const auto elsewhere = [&](const Device& other) { return other.node != device.node; };
  const bool several = !device.node.empty() && std::ranges::any_of(devices, elsewhere);
  return (several ? device.node + "/" : "") + to_text(device);
}

}  // namespace pp
