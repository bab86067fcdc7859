#include "libprofile/device/machine.h"

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"

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

Bytes machine_memory() {
  const std::int64_t bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return Bytes(std::min(bytes, group_limits().memory_bytes.value_or(bytes)));
}

Bytes available_memory() {
  const GroupLimits limits = group_limits();
  std::int64_t least = limits.memory_left.value_or(machine_memory().value);
  std::ifstream file("/proc/meminfo");  // `MemAvailable:   12345 kB`
  std::int64_t kib = 0;
  for (std::string key; file >> key; file.ignore(1 << 10, '\n')) {
    if (key == "MemAvailable:" && file >> kib) least = std::min(least, kib << 10);
  }
  rlimit space{};
  std::int64_t pages = 0;
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
      std::ifstream("/proc/self/statm") >> pages)
    least = std::min(least, static_cast<std::int64_t>(space.rlim_cur) - pages * sysconf(_SC_PAGESIZE));
  return Bytes(std::max<std::int64_t>(0, least));
}

Bytes process_memory() {
  malloc_trim(0);
  std::ifstream file("/proc/self/status");  // `RssAnon:   12345 kB`
  std::int64_t sum = 0, kib = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    if (words >> key >> kib && (key == "RssAnon:" || key == "RssShmem:")) sum += kib << 10;
  }
  return Bytes(sum);
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

std::optional<Load> machine_load() {
  double average = 0;
  if (getloadavg(&average, 1) != 1) return std::nullopt;
  return Load{average, std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)))};
}

namespace {

/// The first number in a hardware thread's `file`, such as 0 of `0,64`.
int first_number(const std::filesystem::path& topology, int thread, const char* file, int otherwise) {
  int first = otherwise;
  std::ifstream(topology / ("cpu" + std::to_string(thread)) / file) >> first;
  return first;
}

/// Without a look at quotas.
std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(static_cast<std::size_t>(core), &allowed)) cores.push_back(core);
    }
  }
  if (cores.empty()) {
    const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int core = 0; core < count; ++core) cores.push_back(core);
  }
  return cores;
}

/// Whether a quota leaves the process less time than the cores that it may run on have.
bool has_fewer_than_allowed() {
  const std::size_t allowed = allowed_cores().size();
  return cores_within(allowed, group_limits().cores) < allowed;
}

}  // namespace

std::size_t cores_within(std::size_t allowed, std::optional<double> quota) {
  if (!quota || *quota >= static_cast<double>(allowed)) return allowed;
  return static_cast<std::size_t>(std::max(1.0, std::floor(*quota)));
}

std::vector<int> usable_cores() {
  std::vector<int> cores = spread_over_cores(allowed_cores());
  cores.resize(cores_within(cores.size(), group_limits().cores));
  return cores;
}

std::vector<int> spread_over_cores(std::vector<int> threads, const std::filesystem::path& topology) {
  std::map<int, int> seen;                  // by a core's first thread
  std::map<int, std::array<int, 3>> place;  // turn on its core, package, the last cache's first thread
  for (const int thread : threads) {
    const int core = first_number(topology, thread, "topology/thread_siblings_list", thread);
    place[thread] = {seen[core]++, first_number(topology, thread, "topology/physical_package_id", 0),
                     first_number(topology, thread, "cache/index3/shared_cpu_list", 0)};
  }
  std::ranges::stable_sort(threads, {}, [&](int thread) { return place[thread]; });
  return threads;
}

void pin_thread(std::span<const int> cores) {
  if (cores.empty() || has_fewer_than_allowed()) return;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &wanted);
  if (sched_setaffinity(0, sizeof wanted, &wanted) == 0) return;
  throw Error(ErrorKind::device, "cannot run on cores " + list_cores(cores) + ": " + std::strerror(errno));
}

std::string list_cores(std::span<const int> cores) {
  std::string text;
  for (const int core : cores) text += (text.empty() ? "" : ",") + std::to_string(core);
  return text;
}

}  // namespace pp::profile
