// Hand-over and all-reduce of tensors between the threads of any devices, timed. Internal to the link meter;
// tests run it on CPU devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "librun/links/link_fit.h"

namespace pp::run {

/// Messages of each size, back and forth between a thread of each device.
std::vector<LinkSample> sample_pair(const at::Device& first, const at::Device& second, const LinkSweep& sweep);

/// A device and the cores of its thread, which has as many threads to compute with; none: one thread, anywhere.
struct SummingDevice {
  at::Device device;
  std::vector<int> cores = {};
};

/// pp-run's all-reduce of one float32 vector per device. Counted is the first thread's time, from when all
/// vectors are written until it has the sum on its device.
std::vector<LinkSample> sample_all_reduce(const std::vector<SummingDevice>& devices, const LinkSweep& sweep);

}  // namespace pp::run
