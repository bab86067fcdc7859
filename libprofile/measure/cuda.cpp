#include <c10/cuda/CUDAFunctions.h>

#include "libprofile/measure/cuda_devices.h"

namespace pp::profile {

int cuda_device_count() { return c10::cuda::device_count(); }

std::string why_no_cuda() { return "no CUDA driver or device found"; }

}  // namespace pp::profile
