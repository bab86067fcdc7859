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

}  // namespace pp::cli
