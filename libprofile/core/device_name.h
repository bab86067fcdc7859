// A device as people know it.
#pragma once

#include <span>
#include <string>

#include "libprofile/core/cluster.h"

namespace pp {

/// `cuda:0`, or `a/cuda:0` where the devices stand on several nodes.
std::string device_name(std::span<const Device> devices, const Device& device);

}  // namespace pp
