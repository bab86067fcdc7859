// The CUDA devices of this machine, as messages and documents name them: in the module that delayed_cuda.cpp
// loads, or no_cuda.cpp in a build without. Torch-free; cuda_device.h is the half that computes.
#pragma once

#include <string>

#include "libprofile/core/units.h"

namespace pp::profile {

/// Devices that LibTorch sees; 0 without a driver (build.h says why).
int cuda_device_count();

/// `NVIDIA H200`; the device exists.
std::string cuda_device_name(int index);
/// Memory that is free for tensors before any is made: what other programs and the driver's own context have
/// left. Creates the context, which takes a moment. The device exists.
Bytes cuda_device_memory(int index);
/// What LibTorch's allocator has had at most since the process began: in blocks that it gave out, and taken
/// from the device for them and for what it keeps in between. Zero where it has not begun.
struct AllocatorPeak {
  Bytes blocks, reserved;
};
AllocatorPeak cuda_allocator_peak(int index);
/// Whether memory of two different devices is copied directly; else every copy goes through the host. Both
/// exist.
bool cuda_peer_access(int from, int to);

}  // namespace pp::profile
