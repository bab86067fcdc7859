// Who pays for a tensor that one worker hands to another by reference: each side for what it holds, as if it
// had memory of its own, and nobody while the tensor is under way. So what a worker is charged for follows from
// the order of its operations and not from who happens to be faster.
#pragma once

#include <ATen/core/Tensor.h>

#include "libprofile/measure/memory_meter.h"

namespace pp::profile {

/// Ends the charge of a tensor that nobody but the caller holds; one that the sender keeps stays charged to it.
/// The caller hands on its only handle.
void release_charge(const at::Tensor& sent);

/// The same tensor, charged to `account` for as long as somebody holds what is returned: a second charge when
/// the sender keeps it. About a microsecond.
at::Tensor received(at::Tensor tensor, const MemoryAccount& account);

}  // namespace pp::profile
