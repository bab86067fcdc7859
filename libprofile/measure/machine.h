// What this process may use of the machine it runs on. Torch-free.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/units.h"

namespace pp::profile {

/// Core numbers that the calling thread may run on, ascending: in main those of the process, so that
/// taskset and containers are respected.
std::vector<int> usable_cores();
/// Restricts the calling thread, and threads that it starts later, to `cores`; nothing happens for an empty
/// list.
void pin_thread(const std::vector<int>& cores);
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
