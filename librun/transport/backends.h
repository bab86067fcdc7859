// The libraries that a build has for messages between processes. Plain values only: apps include this header.
#pragma once

#include <string>

namespace pp::run {

/// Name and version of the MPI library, `Open MPI v4.1.4`; empty in a build without MPI. Before joining, too.
std::string mpi_library();
/// Version of the NCCL library that the build was made with; empty without one.
std::string nccl_library();

}  // namespace pp::run
