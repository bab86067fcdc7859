#include "librun/threads/core_binding.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/cores.h"

namespace pp::run {
namespace {

void check_core(const Device& device, int core, std::span<const int> allowed) {
  if (std::find(allowed.begin(), allowed.end(), core) != allowed.end()) return;
  throw Error(ErrorKind::device, "device " + to_text(device) + ": core " + std::to_string(core) +
                                     " is not available, this process may use " + profile::list_cores(allowed) +
                                     "; plan with devices that leave their cores open (--devices N)");
}

}  // namespace

CoreBinding bind_cores(std::span<const Device> devices, std::span<const int> allowed) {
  CoreBinding binding;
  std::vector<std::pair<int, int>> users;  // core, how many devices; as `allowed`
  for (const int core : allowed) users.emplace_back(core, 0);
  for (const Device& device : devices) {
    for (const int core : device.cores) {
      check_core(device, core, allowed);
      ++std::ranges::find(users, core, &std::pair<int, int>::first)->second;
    }
  }
  for (const Device& device : devices) {
    binding.cores.push_back(device.cores);
    if (!device.cores.empty() || device.kind == DeviceKind::cuda) continue;
    const auto least = std::ranges::min_element(users, {}, &std::pair<int, int>::second);
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

}  // namespace pp::run
