// Plans by hand on CUDA devices.
#pragma once

#include "tests/support/plans.h"

namespace pp::test {

/// All workers on cuda:0, or worker w on cuda:w.
enum class Sharing { one_device, device_each };

inline pp::plan::Plan plan_on_cuda(const PlanSpec& spec, Sharing sharing = Sharing::one_device) {
  pp::plan::Plan plan = make_plan(spec);
  for (pp::Device& device : plan.devices) {
    device.kind = pp::DeviceKind::cuda;
    if (sharing == Sharing::one_device) device.index = 0;
  }
  return plan;
}

}  // namespace pp::test
