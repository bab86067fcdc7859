// Which kernels are faster here: both of each operation of a model, timed by themselves.
#pragma once

#include <vector>

#include "libprofile/device/timer.h"
#include "libprofile/model/kernels/kernels.h"

namespace pp::profile {

/// Times both kernels of each key on the calling thread's cores, in turn: up to five rounds of half a
/// millisecond or one call each; beyond 50 ms the first round that is clear, or the second, is the last. The
/// usual kernel counts with its best round, the other with its median. Also those of the products inside
/// convolutions that become products. Those that are `known` stay. All of them by key.
std::vector<KernelChoice> time_kernels(const model::KernelKeys& keys, std::vector<KernelChoice> known,
                                       const Clock& clock);

/// The other kernel where it is 3 % faster.
Kernel faster_kernel(const KernelChoice& timed);

/// Of all products oneDNN's, nothing measured, and those that are `known`. By key.
std::vector<KernelChoice> onednn_kernels(const model::KernelKeys& keys, std::vector<KernelChoice> known);

}  // namespace pp::profile
