#include "libprofile/core/error.h"
#include "librun/transport/ranks.h"

namespace pp::run {

std::unique_ptr<Ranks> join_mpi_ranks() {
  throw Error(
      ErrorKind::usage,
      "this build has no MPI; install it (Debian: libopenmpi-dev), configure again with -DPP_MPI=ON and build");
}

}  // namespace pp::run
