// Who pays for a tensor that one worker hands to another by reference, and how long its memory lasts: each side
// pays for what it holds, as if it had memory of its own, neither while the tensor is under way. So what a
// worker is charged for follows from the order of its operations and not from who happens to be faster.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "libprofile/device/memory_meter.h"

namespace pp::profile {

/// Ends the charges of blocks that only `leaving` hold: all that is handed over at once, several of which may
/// share a block, before the first of them is. A block that the sender keeps stays charged to it.
void release_charges(std::span<const at::Tensor> leaving);

/// The same tensor behind a storage of its own, which cannot be resized, charged to `account` for as long as
/// it is held. The block itself and its charge are left alone: others may hold it too. About a
/// microsecond.
at::Tensor received(const at::Tensor& tensor, const MemoryAccount& account);

/// The memory of `tensor`, received or not, is used by what the calling thread's current stream on its CUDA
/// device is handed: whichever thread drops the last handle, the memory is not reused before that is done.
void keep_for_stream(const at::Tensor& tensor);

}  // namespace pp::profile
