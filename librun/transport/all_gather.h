// Lists of tensors that all members of a group of workers on several ranks bring to each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "librun/transport/collectives.h"
#include "librun/transport/group_view.h"

namespace pp::run {

/// What every member brings, in their order, on the host; at most 6 dimensions each. Bruck et al. (IEEE TPDS
/// 1997): in round k a member hands what it has of 2^k members to the one 2^k places in front, so that each
/// sends 2 ceil(log2 q) messages. Waits as Coordinator::poll() does.
Collectives::Parts all_gather(Coordinator& coordinator, const GroupView& view, std::vector<at::Tensor> mine);

}  // namespace pp::run
