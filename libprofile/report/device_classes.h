// Profiles of one model by several devices, sorted into classes of equal devices.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libprofile/core/profile.h"

namespace pp::profile {

/// Devices of one kind, name and number of cores.
struct DeviceClass {
  std::string name;          ///< for files: `amd-epyc`; `amd-epyc-2` where another class has that name
  std::vector<int> members;  ///< positions of their profiles; the first stands for all
  double speed = 1;          ///< relative to the first class
};

/// The classes in the order of their first members; all of speed 1.
std::vector<DeviceClass> device_classes(std::span<const ProfiledDevice> devices);

/// Sets the speeds by the profiles of the same devices: the time of F and B of all layers, and the loss, of the
/// first class over that of the class, of their first members, at the largest micro-batch size that has fitted
/// into both. Without such a size it stays 1.
void set_speeds(std::span<DeviceClass> classes, std::span<const Profile> profiles);

/// What is doubtful: members that take more than a quarter longer or shorter than the first of their class, and
/// classes whose speed could not be measured. One sentence each; `names` are those of the devices.
std::vector<std::string> class_findings(std::span<const Profile> profiles, std::span<const DeviceClass> classes,
                                        std::span<const std::string> names);

}  // namespace pp::profile
