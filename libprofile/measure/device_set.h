// Which devices exist, and which of them a device set means. Torch-free; profiler.h has the public half.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libprofile/measure/profiler.h"

namespace pp::profile {

struct MachineDevices {
  std::vector<int> cores;     ///< core numbers; `cpu:k` is the k-th of them
  int cuda = 0;               ///< devices that LibTorch sees
  std::string why_no_cuda{};  ///< when there are none
};

/// As the public parse_device_set(), on a machine that the caller describes. More cores than the machine has
/// are allowed (the devices then share cores, and a warning says so); a first device that does not exist is
/// not.
DeviceSet parse_device_set(std::string_view text, const MachineDevices& machine);

/// As the public all_devices(); CUDA devices are measured one at a time.
DeviceSet all_devices(DeviceSet devices, const MachineDevices& machine);

/// `cpu:1`, `cpu:2x1`, `cuda:0`: the text that parse_device_set() reads as this set.
std::string to_text(const DeviceSet& devices);

/// The cores of device `device` of the set, in [0, count): the next `cores` ones, from the beginning again when
/// the machine has too few; each core once.
std::vector<int> cores_of(const DeviceSet& devices, int device, const std::vector<int>& machine_cores);

}  // namespace pp::profile
