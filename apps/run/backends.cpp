#include "apps/run/backends.h"

#include <utility>
#include <vector>

#include "libprofile/device/build.h"
#include "librun/transport/backends.h"

namespace pp::run_tool {

std::string backends_text() {
  const std::vector<std::pair<std::string, std::string>> versions{{"LibTorch", profile::libtorch_version()},
                                                                  {"CUDA", profile::cuda_version()},
                                                                  {"MPI", run::mpi_library()},
                                                                  {"NCCL", run::nccl_library()}};
  std::string text;
  for (const auto& [name, version] : versions)
    text += (text.empty() ? "" : "\n") + name + ": " + (version.empty() ? "not in this build" : version);
  return text;
}

}  // namespace pp::run_tool
