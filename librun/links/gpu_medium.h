// The memory of GPUs, for the meter of links between ranks.
#pragma once

#include <memory>
#include <utility>

#include "librun/links/rank_links.h"
#include "librun/transport/device_group.h"

namespace pp::run {

/// Of all ranks, in their order; `device` is what this rank says of its own.
std::unique_ptr<LinkMedium> make_group_medium(std::shared_ptr<DeviceGroup> group, Device device);

}  // namespace pp::run
