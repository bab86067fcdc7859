// The cores of this machine that this process may use, and which of them a thread runs on. Torch-free.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace pp::profile {

/// Core numbers that the calling thread may run on, ascending: in main those of the process, so that
/// taskset and containers are respected.
std::vector<int> usable_cores();
/// Restricts the calling thread, and threads that it starts later, to `cores`; nothing happens for an empty
/// list. Throws pp::Error (device) when the system refuses.
void pin_thread(std::span<const int> cores);
/// `0,2,3`
std::string list_cores(std::span<const int> cores);

}  // namespace pp::profile
