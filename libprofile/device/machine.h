// The machine this process runs on: memory, processor, load, the cores that it may use, and what its control
// groups allow it (Linux, versions 1 and 2), where batch systems and containers set limits. Torch-free.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/units.h"

namespace pp::profile {

/// Physical memory, or the limit of the process's control groups when that is lower.
Bytes machine_memory();
/// What could still be taken of it without driving others out: at most what is left of the control groups and
/// of the process's address space (ulimit -v).
Bytes available_memory();
/// What this process has of it for itself or shares with others, files that it maps left out; what malloc keeps
/// in between is given back first.
Bytes process_memory();
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

/// The smallest limits on the way from the process's own group to the root of the hierarchy that it sees; a
/// limit of a group holds for all below it.
struct GroupLimits {
  std::optional<std::int64_t> memory_bytes;
  /// What the fullest of the limited groups has left. File pages that were not used lately count as free.
  std::optional<std::int64_t> memory_left;
  std::optional<double> cores;  ///< CPU time per time: `cpu.max`, the quota of a container
  bool operator==(const GroupLimits&) const = default;
};

/// Read anew at each call. What is missing or unreadable limits nothing. `root` has `proc` and, where
/// proc/self/mountinfo says so, the hierarchies.
GroupLimits group_limits(const std::filesystem::path& root = "/");

}  // namespace pp::profile
