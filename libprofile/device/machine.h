// Memory, processor and load of the machine this process runs on. Torch-free.
#pragma once

#include <optional>
#include <string>

#include "libprofile/core/units.h"

namespace pp::profile {

/// Physical memory, or the limit of the process's control groups when that is lower.
Bytes machine_memory();
/// What could still be taken of it without driving others out: at most what is left of the control groups and
/// of the process's address space (ulimit -v).
Bytes available_memory();
/// `AMD EPYC 9354`, or `CPU` where the system does not say.
std::string cpu_name();
/// Runnable processes of the whole machine, averaged over the last minute, and its cores: more than this
/// process may use, where it has been given some of them.
struct Load {
  double average = 0;
  int cores = 1;
};
/// Nothing where the system does not say.
std::optional<Load> machine_load();

}  // namespace pp::profile
