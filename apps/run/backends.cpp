#include "apps/run/backends.h"

#include "libprofile/device/build.h"
#include "librun/transport/backends.h"

namespace pp::run_tool {

std::vector<std::pair<std::string, std::string>> backends() {
  return {{"LibTorch", profile::libtorch_version()},
          {"CUDA", profile::cuda_version()},
          {"MPI", run::mpi_library()},
          {"NCCL", run::nccl_library()}};
}

}  // namespace pp::run_tool
