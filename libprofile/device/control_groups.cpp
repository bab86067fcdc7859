#include "libprofile/device/control_groups.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace pp::profile {
namespace {

namespace fs = std::filesystem;

/// A hierarchy of groups as it is mounted: of version 2, or of one or more controllers of version 1.
struct Hierarchy {
  bool unified = false;
  std::vector<std::string> controllers;  ///< `memory`, `cpu`; none: unified
  fs::path top;                          ///< the group that `mounted` shows
  fs::path mounted;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool contains(const std::vector<std::string>& list, const std::string& one) {
  return std::ranges::find(list, one) != list.end();
}

/// Lines such as `35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory`.
std::vector<Hierarchy> hierarchies(const fs::path& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::ranges::find(words, "-");
    if (words.end() - dash < 4 || dash - words.begin() < 6) continue;
    const bool unified = dash[1] == "cgroup2";
    if (!unified && dash[1] != "cgroup") continue;
    found.push_back({unified, split(dash[3], ','), words[3], root / fs::path(words[4]).relative_path()});
  }
  return found;
}

/// The process's own group, from lines such as `4:memory:/job_7/step_0` and, of version 2, `0::/user.slice`.
std::optional<fs::path> own_group(const fs::path& root, const Hierarchy& hierarchy,
                                  const std::string& controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (hierarchy.unified ? controllers.empty() : contains(split(controllers, ','), controller))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

/// Calls visit(folder) for the process's own group and those above it. A container may see its group as the top
/// of what is mounted, by another name.
template <class Visit>
void for_each_group(const fs::path& root, const std::string& controller, Visit visit) {
  for (const Hierarchy& hierarchy : hierarchies(root)) {
    if (!hierarchy.unified && !contains(hierarchy.controllers, controller)) continue;
    const auto own = own_group(root, hierarchy, controller);
    if (!own) continue;
    const fs::path below = own->lexically_relative(hierarchy.top);
    const bool outside = below.empty() || *below.begin() == "..";
    fs::path group = outside || below == "." ? hierarchy.mounted : hierarchy.mounted / below;
    for (;; group = group.parent_path()) {
      visit(group, hierarchy.unified);
      if (group == hierarchy.mounted) break;
    }
  }
}

/// The file's first number; nothing for `max` and for a file that is not there.
std::optional<std::int64_t> number_in(const fs::path& file) {
  std::int64_t value = 0;
  if (std::ifstream(file) >> value) return value;
  return std::nullopt;
}

/// The number behind a word of memory.stat, 0 where it has none.
std::int64_t statistic(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  std::int64_t value = 0;
  for (std::string word; in >> word >> value;) {
    if (word == name) return value;
  }
  return 0;
}

template <class Value>
void lower(std::optional<Value>& limit, Value value) {
  limit = limit ? std::min(*limit, value) : value;
}

void take_memory(GroupLimits& limits, const fs::path& group, bool unified) {
  const auto limit = number_in(group / (unified ? "memory.max" : "memory.limit_in_bytes"));
  if (!limit || *limit <= 0) return;
  lower(limits.memory_bytes, *limit);
  const auto used = number_in(group / (unified ? "memory.current" : "memory.usage_in_bytes"));
  if (!used) return;
  const std::int64_t idle = statistic(group / "memory.stat", unified ? "inactive_file" : "total_inactive_file");
  lower(limits.memory_left, std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *used - idle)));
}

void take_cores(GroupLimits& limits, const fs::path& group, bool unified) {
  double quota = 0, period = 0;
  if (unified) {
    std::ifstream(group / "cpu.max") >> quota >> period;  // `max 100000`, `150000 100000`
  } else {
    quota = static_cast<double>(number_in(group / "cpu.cfs_quota_us").value_or(0));  // -1: none
    period = static_cast<double>(number_in(group / "cpu.cfs_period_us").value_or(0));
  }
  if (quota > 0 && period > 0) lower(limits.cores, quota / period);
}

}  // namespace

GroupLimits group_limits(const fs::path& root) {
  GroupLimits limits;
  for_each_group(root, "memory",
                 [&](const fs::path& group, bool unified) { take_memory(limits, group, unified); });
  for_each_group(root, "cpu", [&](const fs::path& group, bool unified) { take_cores(limits, group, unified); });
  return limits;
}

}  // namespace pp::profile
