#include "apps/cli/ranks.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>

namespace pp::cli {

// What the launchers of Open MPI, MPICH and those that speak PMIx (srun, which says the number elsewhere) tell
// the processes that they start. A shell that was started so, alone, hands it on to every command that is typed
// there.
bool launched_with_ranks() {
  constexpr std::array kSizes{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
  const auto are_several = [](const char* variable) {
    const char* const size = std::getenv(variable);
    return size != nullptr && std::strtol(size, nullptr, 10) > 1;
  };
  return std::ranges::any_of(kSizes, are_several) ||
         (std::getenv("PMIX_RANK") != nullptr && are_several("SLURM_STEP_NUM_TASKS"));
}

std::string launched_as() {
  const auto first_set = [](std::initializer_list<const char*> variables) {
    for (const char* const variable : variables)
      if (const char* const value = std::getenv(variable)) return std::string(value);
    return std::string("?");
  };
  return "rank " + first_set({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) + " of " +
         first_set({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"});
}

// Over TCP, Open MPI sends a message of more than 64 KiB only when the receiver has asked for it, and that one
// may be computing: two more ways through the network, and two more looks for messages. Here receivers have
// made room by then.
void set_up_mpi() { setenv("OMPI_MCA_btl_tcp_eager_limit", "4194304", 0); }

}  // namespace pp::cli
