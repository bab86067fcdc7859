#include "libprofile/device/cores.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/control_groups.h"

namespace pp::profile {

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
