#include "libprofile/device/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>

namespace pp::profile {

Bytes machine_memory() {
  std::int64_t bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  std::int64_t limit = 0;
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (std::ifstream(file) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return Bytes(bytes);
}

Bytes available_memory() {
  std::int64_t least = machine_memory().value;
  std::ifstream file("/proc/meminfo");  // `MemAvailable:   12345 kB`
  std::int64_t kib = 0;
  for (std::string key; file >> key; file.ignore(1 << 10, '\n')) {
    if (key == "MemAvailable:" && file >> kib) least = std::min(least, kib << 10);
  }
  std::int64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used)
    least = std::min(least, limit - used);
  rlimit space{};
  std::int64_t pages = 0;
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
      std::ifstream("/proc/self/statm") >> pages)
    least = std::min(least, static_cast<std::int64_t>(space.rlim_cur) - pages * sysconf(_SC_PAGESIZE));
  return Bytes(std::max<std::int64_t>(0, least));
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

std::optional<double> load_average() {
  double load = 0;
  if (getloadavg(&load, 1) != 1) return std::nullopt;
  return load;
}

}  // namespace pp::profile
