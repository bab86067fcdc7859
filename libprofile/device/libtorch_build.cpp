#include <torch/version.h>

#include "libprofile/device/build.h"

namespace pp::profile {

std::string libtorch_version() { return TORCH_VERSION; }

}  // namespace pp::profile
