#include "librun/transport/backends.h"

namespace pp::run {

std::string nccl_library() { return ""; }

}  // namespace pp::run
