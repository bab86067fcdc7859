// Whether this process is one of several that were started together.
#pragma once

namespace pp::cli {

/// Whether mpirun or srun has started it, be it alone.
bool launched_with_ranks();

}  // namespace pp::cli
