// Memory, processor and load of the machine this process runs on. Torch-free.
#pragma once

#include <optional>
#include <string>

#include "libprofile/core/units.h"

namespace pp::profile {

/// Physical memory, or the control group's limit when that is lower.
Bytes machine_memory();
/// What could still be taken of it without driving others out: at most what is left of the control group and of
/// the process's address space (ulimit -v).
Bytes available_memory();
/// `AMD EPYC 9354`, or `CPU` where the system does not say.
std::string cpu_name();
/// Runnable processes, averaged over the last minute; nothing where the system does not say.
std::optional<double> load_average();

}  // namespace pp::profile
