#include "libprofile/device/build.h"

namespace pp::profile {

std::string cuda_version() { return ""; }
std::string why_no_cuda() { return "this build has no CUDA"; }

}  // namespace pp::profile
