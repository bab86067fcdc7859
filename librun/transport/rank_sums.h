// Sums over workers on several ranks, which go on while their workers compute, and lists of tensors that all
// members of such a group bring to each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "librun/transport/collectives.h"
#include "librun/transport/group_view.h"

namespace pp::run {

/// What every member brings, in their order, on the host; at most 6 dimensions each. Bruck et al. (IEEE TPDS
/// 1997): in round k a member hands what it has of 2^k members to the one 2^k places in front, so that each
/// sends 2 ceil(log2 q) messages. Waits as Coordinator::poll() does.
Collectives::Parts all_gather(Coordinator& coordinator, const GroupView& view, std::vector<at::Tensor> mine);

/// By slices: each member adds one slice of all vectors, in the order of the members, and gives it to the
/// others, so that a member sends 2(q-1)/q of its bytes. A vector on a GPU goes by way of the host.
std::unique_ptr<PendingSum> begin_slice_sum(Coordinator& coordinator, const GroupView& view,
                                            const at::Tensor& mine);
/// The first half of it, for such slices: the sums stay with their owners.
std::unique_ptr<PendingSum> begin_slice_reduce(Coordinator& coordinator, const GroupView& view,
                                               const at::Tensor& mine, std::span<const Slice> slices);
/// The second half: blocks until `mine` has every slice as its owner has it.
void spread_slices(Coordinator& coordinator, const GroupView& view, const at::Tensor& mine,
                   std::span<const Slice> slices);
/// By the library's group of this number, as it likes to add; float32 or float64.
std::unique_ptr<PendingSum> begin_library_sum(Coordinator& coordinator, const GroupView& view, int library,
                                              const at::Tensor& mine);

}  // namespace pp::run
