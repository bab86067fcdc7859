// The optional CUDA half of the profiler: cuda.cpp where LibTorch::cuda is found, else no_cuda.cpp. This far it
// only counts devices, so that messages can list them.
#pragma once

#include <string>

namespace pp::profile {

/// Devices that LibTorch sees; 0 without a driver.
int cuda_device_count();
/// Why the count is 0: `this build has no CUDA`, `no CUDA driver or device found`.
std::string why_no_cuda();

}  // namespace pp::profile
