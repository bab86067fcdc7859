// The CUDA devices of this machine, as messages and documents name them: cuda_devices.cpp where LibTorch::cuda
// is found, else no_cuda.cpp. Torch-free; cuda_device.h is the half that computes.
#pragma once

#include <string>

#include "libprofile/core/units.h"

namespace pp::profile {

/// Devices that LibTorch sees; 0 without a driver.
int cuda_device_count();
/// Why the count is 0: `this build has no CUDA`, `no CUDA driver or device found`.
std::string why_no_cuda();

/// Of the runtime that LibTorch was built with, `13.0`; empty where the build has no CUDA.
std::string cuda_version();

/// `NVIDIA H200`; the device exists.
std::string cuda_device_name(int index);
/// Memory that is free for tensors before any is made: what other programs and the driver's own context have
/// left. Creates the context, which takes a moment. The device exists.
Bytes cuda_device_memory(int index);
/// Whether memory of two different devices is copied directly; else every copy goes through the host. Both
/// exist.
bool cuda_peer_access(int from, int to);

}  // namespace pp::profile
