#include "libprofile/core/error.h"
#include "librun/transport/backends.h"
#include "librun/transport/peers.h"

namespace pp::run {

namespace {

[[noreturn]] void refuse() {
  throw Error(
      ErrorKind::usage,
      "this build has no MPI; install it (Debian: libopenmpi-dev), configure again with -DPP_MPI=ON and build");
}

}  // namespace

std::string mpi_library() { return ""; }

std::unique_ptr<Peers> join_mpi_peers(std::string /*me*/, Seconds /*patience*/) { refuse(); }

}  // namespace pp::run
