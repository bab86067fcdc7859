// What this build computes with, known without loading it. Torch-free.
#pragma once

#include <string>

namespace pp::profile {

std::string libtorch_version();
/// Of the runtime that LibTorch was built with, `13.0`; empty where the build has no CUDA.
std::string cuda_version();
/// Why there is no CUDA device: `this build has no CUDA`, `no CUDA driver or device found`.
std::string why_no_cuda();

}  // namespace pp::profile
