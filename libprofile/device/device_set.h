// Which devices exist, and which of them a device set means. Torch-free; process.h knows those of this machine.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/cluster.h"

namespace pp::profile {

/// What is measured on: `count` devices of `cores` cores each, all busy; the first one's times are recorded.
struct DeviceSet {
  DeviceKind kind = DeviceKind::cpu;
  int first = 0;
  int count = 1;
  int cores = 1;
  bool operator==(const DeviceSet&) const = default;
};
struct MachineDevices {
  std::vector<int> cores;                        ///< core numbers; `cpu:k` is the k-th of them
  std::function<int()> cuda = [] { return 0; };  ///< devices that LibTorch sees; asking loads its CUDA half
  std::string why_no_cuda{};                     ///< when there are none
};

/// `cpu:0` (device 0, one core), `cpu:2x1` (two devices of one core, both working), `cuda:0`. More cores than
/// the machine has are allowed (the devices then share cores, and a warning says so); a first device that does
/// not exist is not. Throws pp::Error (usage) with the forms, or (device) with the devices that exist.
DeviceSet parse_device_set(std::string_view text, const MachineDevices& machine);

/// As many devices like these as the machine has room for, all busy; CUDA devices work one at a time.
DeviceSet all_devices(DeviceSet devices, const MachineDevices& machine);

/// `cpu:1`, `cpu:2x1`, `cuda:0`: the text that parse_device_set() reads as this set.
std::string to_text(const DeviceSet& devices);

/// The cores of device `device` of the set, in [0, count): the next `cores` ones, from the beginning again when
/// the machine has too few; each core once.
std::vector<int> cores_of(const DeviceSet& devices, int device, const std::vector<int>& machine_cores);

}  // namespace pp::profile
