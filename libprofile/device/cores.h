// The cores of this machine that this process may use, and which of them a thread runs on. Torch-free.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pp::profile {

/// Core numbers that the calling thread may run on: in main those of the process, so that taskset and
/// containers are respected. In the order of spread_over_cores(), and of them as many as the control groups
/// leave time for (cpu.max, rounded down, at least one).
std::vector<int> usable_cores();
/// How many of `allowed` cores a quota of CPU time is counted as.
std::size_t cores_within(std::size_t allowed, std::optional<double> quota);
/// Hardware threads, so that whoever takes from the front shares no core while others are free: those that
/// share one with an earlier one stand behind all others; before that, those of a package and of a last-level
/// cache stand together. `topology`/cpuN says which do, as Linux writes it; where it is silent, each is a core
/// of its own, and all are of one package.
std::vector<int> spread_over_cores(std::vector<int> threads,
                                   const std::filesystem::path& topology = "/sys/devices/system/cpu");
/// Restricts the calling thread, and threads that it starts later, to `cores`; nothing happens for an empty
/// list, nor where a quota is less than the cores allowed: such a process has time but no cores of its own, and
/// the next one with a quota would take the same ones. Throws pp::Error (device) when the system refuses.
void pin_thread(std::span<const int> cores);
/// `0,2,3`
std::string list_cores(std::span<const int> cores);

}  // namespace pp::profile
