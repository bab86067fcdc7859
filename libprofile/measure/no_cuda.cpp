#include "libprofile/measure/cuda_devices.h"

namespace pp::profile {

int cuda_device_count() { return 0; }

std::string why_no_cuda() { return "this build has no CUDA"; }

}  // namespace pp::profile
