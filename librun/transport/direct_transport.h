// GPUs of different ranks without their hosts: what a device group can carry goes by it, all else another way.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "librun/transport/collectives.h"
#include "librun/transport/device_group.h"
#include "librun/transport/transport.h"

namespace pp::run {

/// By channel, or by group of workers; null: the other way.
using DeviceGroups = std::vector<std::shared_ptr<DeviceGroup>>;

/// `groups`: of two members, the channel's sender first; channels that share one are used in turns. Where a
/// channel leaves the type open its first message goes the other way, which tells it. All but `other` must
/// outlive it.
std::unique_ptr<Transport> make_direct_transport(Coordinator& coordinator, std::unique_ptr<Transport> other,
                                                 std::vector<Channel> channels, DeviceGroups groups);

/// Members of a group in its order. `fast`: sums as the library adds them, in any order; else by slices, as
/// make_rank_collectives() does, with the same bits.
std::unique_ptr<Collectives> make_direct_collectives(std::unique_ptr<Collectives> other, DeviceGroups groups,
                                                     bool fast);

}  // namespace pp::run
