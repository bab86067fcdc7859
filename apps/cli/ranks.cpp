#include "apps/cli/ranks.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace pp::cli {

// What the launchers of Open MPI, MPICH and those that speak PMIx tell the processes that they start.
bool launched_with_ranks() {
  constexpr std::array kVariables{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
  return std::ranges::any_of(kVariables, [](const char* name) { return std::getenv(name) != nullptr; });
}

// Over TCP, Open MPI sends a message of more than 64 KiB only when the receiver has asked for it, and that one
// may be computing: two more ways through the network, and two more looks for messages. Here receivers have
// made room by then.
void set_up_mpi() { setenv("OMPI_MCA_btl_tcp_eager_limit", "4194304", 0); }

}  // namespace pp::cli
