#include "libprofile/device/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "libprofile/device/control_groups.h"

namespace pp::profile {

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

}  // namespace pp::profile
