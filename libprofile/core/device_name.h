// A device as people know it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "libprofile/core/cluster.h"

namespace pp {

/// `cuda:0`, or `a/cuda:0` where the devices stand on several nodes.
std::string device_name(std::span<const Device> devices, const Device& device);

/// Whether all words of `model` are words of a profiled device's name, in capital letters or not: `H100` is one
/// of `NVIDIA H100 80GB HBM3`, not of `NVIDIA GH200`. So is no word at all.
bool names_model(std::string_view profiled, std::string_view model);

}  // namespace pp
