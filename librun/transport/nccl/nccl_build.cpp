#include <nccl.h>

#include "librun/transport/backends.h"

namespace pp::run {

std::string nccl_library() {
  return std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + "." + std::to_string(NCCL_PATCH);
}

}  // namespace pp::run
