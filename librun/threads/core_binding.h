// How a plan's CPU devices are bound to the cores that this process may use. Free of Torch.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libprofile/core/cluster.h"

namespace pp::run {

/// The cores of every device, in the plan's order, and what is doubtful about them.
struct CoreBinding {
  std::vector<std::vector<int>> cores;
  std::vector<std::string> warnings;
};

/// CPU devices that name their cores keep them; the others get one core each, in order, first those that nobody
/// has, then shared ones (with a warning). The threads of CUDA devices run where the system puts them: no
/// cores. Throws pp::Error (device) for a core that is not in `allowed`.
CoreBinding bind_cores(std::span<const Device> devices, std::span<const int> allowed);

}  // namespace pp::run
