#include "librun/worker/thread.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

std::string list(std::span<const int> cores) {
  std::string text;
  for (const int core : cores) text += (text.empty() ? "" : ",") + std::to_string(core);
  return text;
}

void check_core(const Device& device, int core, std::span<const int> allowed) {
  if (std::find(allowed.begin(), allowed.end(), core) != allowed.end()) return;
  throw Error(ErrorKind::device, "device " + to_text(device) + ": core " + std::to_string(core) +
                                     " is not available, this process may use " + list(allowed) +
                                     "; plan with devices that leave their cores open (--devices N)");
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

CoreBinding bind_cores(std::span<const Device> devices, std::span<const int> allowed) {
  CoreBinding binding;
  std::map<int, int> users;
  for (const int core : allowed) users[core] = 0;
  for (const Device& device : devices) {
    for (const int core : device.cores) {
      check_core(device, core, allowed);
      ++users[core];
    }
  }
  for (const Device& device : devices) {
    binding.cores.push_back(device.cores);
    if (!device.cores.empty() || device.kind == DeviceKind::cuda) continue;
    const auto least = std::min_element(users.begin(), users.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
    ++least->second;
    binding.cores.back().push_back(least->first);
  }
  for (const auto& [core, count] : users) {
    if (count < 2) continue;
    binding.warnings.push_back("core " + std::to_string(core) + " is shared by " + std::to_string(count) +
                               " devices: measured times will not match the prediction; use at most " +
                               std::to_string(allowed.size()) + " devices of one core on this machine");
  }
  return binding;
}

void pin_thread(std::span<const int> cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return;
  throw Error(ErrorKind::device, "cannot run on cores " + list(cores) + ": " + std::strerror(errno));
}

}  // namespace pp::run
