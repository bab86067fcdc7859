// The cores of this machine that this process may use, and which of them a thread runs on. Torch-free.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace pp::profile {

/// Core numbers that the calling thread may run on: in main those of the process, so that taskset and
/// containers are respected. In the order of spread_over_cores().
std::vector<int> usable_cores();
/// Hardware threads, so that whoever takes from the front shares no core while others are free: those that
/// share one with an earlier one stand behind all others. Linux says which do in
/// `topology`/cpuN/topology/thread_siblings_list; where it does not, each is a core of its own.
std::vector<int> spread_over_cores(std::vector<int> threads,
                                   const std::filesystem::path& topology = "/sys/devices/system/cpu");
/// Restricts the calling thread, and threads that it starts later, to `cores`; nothing happens for an empty
/// list. Throws pp::Error (device) when the system refuses.
void pin_thread(std::span<const int> cores);
/// `0,2,3`
std::string list_cores(std::span<const int> cores);

}  // namespace pp::profile
