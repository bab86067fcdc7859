// What the control groups of a process allow it (Linux, versions 1 and 2): batch systems and containers set
// limits there. Torch-free.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace pp::profile {

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
