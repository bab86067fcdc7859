// Whether this process is one of several that were started together.
#pragma once

#include <string>

namespace pp::cli {

/// Whether mpirun or srun has started it with others.
bool launched_with_ranks();

/// `rank 2 of 4`, as the launcher counts.
std::string launched_as();

/// Before the ranks are joined: what the MPI library should do otherwise than by itself. What the user has set
/// stays.
void set_up_mpi();

}  // namespace pp::cli
