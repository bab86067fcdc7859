// Copies between the memory of a device and that of the host, each charged to an account of its own, also where
// both are one memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "libprofile/device/memory_meter.h"

namespace pp::run {

/// On the host, with the strides of `tensor`, charged to `host`; pinned where the device is a GPU. Complete
/// when it returns.
at::Tensor copied_to_host(const at::Tensor& tensor, const profile::MemoryAccount& host);
/// Unset memory for such a copy.
at::Tensor room_on_host(const at::Tensor& tensor, const profile::MemoryAccount& host);
/// On the device, in memory of its own, charged to whom the thread charges.
at::Tensor copied_to_device(const at::Tensor& tensor, const at::Device& device);

/// Takes away the memory behind a tensor that has a storage of its own, or gives it memory again, whose values
/// are arbitrary; views see the same. What the thread allocates is charged as ever. An undefined tensor is left
/// alone.
void set_memory(const at::Tensor& tensor, bool present);

}  // namespace pp::run
