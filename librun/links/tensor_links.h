// Hand-over and all-reduce of tensors between the threads of any devices, timed. Internal to the link meter;
// tests run it on CPU devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "librun/links/link_fit.h"

namespace pp::run {

/// A device and the cores of its thread, which has as many threads to add with; none: one thread, anywhere.
struct MeteredDevice {
  at::Device device;
  std::vector<int> cores = {};
};

/// Messages of each size, back and forth between a thread of each device, as pp-run hands tensors over; both
/// directions are counted. A message lasts from when its tensor, complete on the sender's device, is put into
/// the queue, until the receiver, blocked in its receive as a pipeline stage is, has woken up and has it.
///
/// Between CUDA devices that is when the copy is complete. Between cores a reference moves, so the hand-over's
/// own cost does not depend on the size. What the runtime pays in addition is paid by the consumer: the
/// producer has just written the bytes on another core, so the consumer's first read of them comes from the
/// shared cache or from memory, and it reads every cache line once. The write is not counted: it is part of the
/// producing layer's time. The read is counted in full although a layer of the same stage would read its input
/// too, from a warmer cache: the cost is an upper bound.
std::vector<LinkSample> sample_pair(const MeteredDevice& first, const MeteredDevice& second,
                                    const LinkSweep& sweep);

/// pp-run's all-reduce of one float32 vector per device. Counted is the first thread's time, from when all
/// vectors are written until it has the sum on its device.
std::vector<LinkSample> sample_all_reduce(const std::vector<MeteredDevice>& devices, const LinkSweep& sweep);

}  // namespace pp::run
