#include "librun/transport/tied_reduce.h"

#include <algorithm>

#include "libprofile/measure/compute_device.h"

namespace pp::run {

namespace {

constexpr auto kWaiting = "the other copies at the all-reduce of shared weights";

TiedGradients add_uses(const std::vector<UseGradients>& parts, const at::Device& device) {
  UseGradients uses;  // in ascending layer order, each once
  for (const UseGradients& part : parts) uses.insert(part.begin(), part.end());
  TiedGradients sums;
  for (const auto& [use, gradient] : uses) {
    if (!gradient.defined()) continue;
    at::Tensor& sum = sums[use.second];
    if (sum.defined()) {
      sum.add_(gradient.to(device));
    } else {
      sum = gradient.to(device, gradient.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    }
  }
  return sums;
}

}  // namespace

TiedReduce::TiedReduce(Coordinator& coordinator, std::vector<WorkerId> workers)
    : workers_(std::move(workers)), barrier_(coordinator, workers_.size()), parts_(workers_.size()) {}

TiedGradients TiedReduce::reduce(WorkerId worker, UseGradients mine, const at::Device& device) {
  const auto position = static_cast<std::size_t>(std::ranges::find(workers_, worker) - workers_.begin());
  parts_[position] = std::move(mine);
  barrier_.arrive_and_wait(worker, kWaiting);
  TiedGradients sums = add_uses(parts_, device);
  profile::wait_for(device);
  barrier_.arrive_and_wait(worker, kWaiting);  // nobody drops its part while another one still reads
  parts_[position] = {};
  return sums;
}

}  // namespace pp::run
