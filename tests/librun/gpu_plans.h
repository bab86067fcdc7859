// Plans by hand on CUDA devices.
#pragma once

#include "tests/support/plans.h"

namespace pp::test {

/// All workers on cuda:0, on cuda:0 and cuda:1 in turns, or worker w on cuda:w.
enum class Sharing { one_device, two_devices, device_each };

inline pp::plan::Plan plan_on_cuda(const PlanSpec& spec, Sharing sharing = Sharing::one_device) {
  pp::plan::Plan plan = make_plan(spec);
  for (pp::Device& device : plan.devices) {
    device.kind = pp::DeviceKind::cuda;
    if (sharing == Sharing::one_device) device.index = 0;
    if (sharing == Sharing::two_devices) device.index %= 2;
  }
  return plan;
}

}  // namespace pp::test
