#include "libprofile/device/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "libprofile/core/error.h"

namespace pp::profile {

std::vector<int> usable_cores() {
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

void pin_thread(std::span<const int> cores) {
  if (cores.empty()) return;
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
