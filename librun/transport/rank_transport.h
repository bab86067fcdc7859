// The transport of a run on several processes: by reference between workers of one, as messages between others.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "librun/transport/collectives.h"
#include "librun/transport/peers.h"
#include "librun/transport/placement.h"
#include "librun/transport/transport.h"

namespace pp::run {

/// What the tensors between ranks are beside what channels say.
struct RankTensors {
  /// The type of floating tensors that are not float32, where channels leave it open; the size of a message
  /// then tells which it is.
  std::optional<at::ScalarType> autocast = std::nullopt;
  bool pinned = false;  ///< they are received for a CUDA device
};

/// A message has its receive posted as soon as it is expected. Its bytes are the tensor's, on the host, without
/// anything else; the tag is made of channel and number. All must outlive it.
std::unique_ptr<Transport> make_rank_transport(Coordinator& coordinator, std::vector<Channel> channels,
                                               const Placement& placement, Peers& peers,
                                               RankTensors tensors = {});

/// Groups within this process as in make_in_process_collectives(). Others sum by slices: each member adds one
/// slice of all vectors, in the order of the members, and gives it to the others, so that a member sends
/// 2(q-1)/q of its bytes. `fast`: this many groups are summed as the library likes to add, where their members
/// are on a rank each and bring float32 or float64.
std::unique_ptr<Collectives> make_rank_collectives(Coordinator& coordinator, std::vector<Group> groups,
                                                   const Placement& placement, Peers& peers,
                                                   std::size_t fast = 0);

}  // namespace pp::run
