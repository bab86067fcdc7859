// Which GPUs of different ranks hand tensors to each other directly. All ranks come to the same answer.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/units.h"
#include "librun/transport/direct_transport.h"
#include "librun/transport/mailbox.h"
#include "librun/transport/placement.h"

namespace pp::run {

/// Groups of this process, null where there is none.
struct DirectWays {
  DeviceGroups channels;     ///< by channel
  DeviceGroups collectives;  ///< by group of workers
  std::vector<std::shared_ptr<DeviceGroup>> all;
};

/// How groups come about: join_device_group() and its kin, or a test's.
struct DeviceGroupMaker {
  std::function<std::string()> key;
  std::function<std::shared_ptr<DeviceGroup>(const std::string& key, int me, int size, WorkerId worker)> join;
};

/// Channels between ranks whose messages keep their order, a group for each lane from one worker to another
/// (an evaluation's is that of a training's), and groups of workers on different ranks: where every member has
/// a GPU of its own. `identity`: per worker here, which GPU it has; empty for another device. Blocks until all
/// ranks have called it. Throws pp::Error (run) on every rank where a group has not come about for `limit`,
/// with the ranks that are missing in it.
DirectWays find_direct_ways(Mailbox& mailbox, const Placement& placement, std::span<const Channel> channels,
                            std::span<const Group> groups, const std::vector<std::string>& identity,
                            const DeviceGroupMaker& maker, Seconds limit);

}  // namespace pp::run
