#include <cuda_runtime_api.h>

#include "libprofile/device/build.h"

namespace pp::profile {

std::string cuda_version() {
  return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

std::string why_no_cuda() { return "no CUDA driver or device found"; }

}  // namespace pp::profile
