#include "librun/transport/all_reduce.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "libprofile/measure/compute_device.h"

namespace pp::run {

namespace {

constexpr auto kWaiting = "the other replicas at the all-reduce";

std::size_t position(const std::vector<WorkerId>& workers, WorkerId worker) {
  return static_cast<std::size_t>(std::find(workers.begin(), workers.end(), worker) - workers.begin());
}

// First replica that has a gradient for the parameter, or null.
const at::Tensor* base_of(const std::vector<StepGradients>& parts, std::size_t parameter) {
  for (const StepGradients& part : parts) {
    if (part.uses[parameter].defined()) return &part.uses[parameter];
  }
  return nullptr;
}

}  // namespace

AllReduce::AllReduce(Coordinator& coordinator, std::vector<WorkerId> replicas)
    : replicas_(std::move(replicas)), barrier_(coordinator, replicas_.size()), parts_(replicas_.size()) {}

StepGradients AllReduce::reduce(WorkerId worker, StepGradients mine, const at::Device& device,
                                Seconds& elapsed) {
  const std::size_t replica = position(replicas_, worker);
  parts_[replica] = std::move(mine);
  barrier_.arrive_and_wait(worker, kWaiting);
  const auto start = Coordinator::Clock::now();
  add_slice(replica);
  elapsed = Coordinator::Clock::now() - start;
  barrier_.arrive_and_wait(worker, kWaiting);
  StepGradients reduced = collect(device);
  barrier_.arrive_and_wait(worker, kWaiting);  // nobody clears its part while another one still collects
  parts_[replica] = {};
  return reduced;
}

void AllReduce::add_slice(std::size_t replica) {
  const std::size_t parameters = parts_.front().uses.size();
  for (std::size_t i = 0; i < parameters; ++i) {
    const at::Tensor* base = base_of(parts_, i);
    if (base == nullptr) continue;
    const std::int64_t size = base->numel();
    const auto count = static_cast<std::int64_t>(replicas_.size());
    const auto first = static_cast<std::int64_t>(replica) * size / count;
    const std::int64_t length = (static_cast<std::int64_t>(replica) + 1) * size / count - first;
    // The buffers are dense and all have the parameter's layout: the same range of storage is the same
    // elements.
    const auto slice = [&](const at::Tensor& t) {
      return t.as_strided({length}, {1}, t.storage_offset() + first);
    };
    at::Tensor sum = slice(*base);
    for (const StepGradients& part : parts_) {
      const at::Tensor& other = part.uses[i];
      if (other.defined() && &other != base) sum.add_(slice(other).to(sum.device()));
    }
    profile::wait_for(sum.device());
  }
}

StepGradients AllReduce::collect(const at::Device& device) const {
  StepGradients reduced;
  for (std::size_t i = 0; i < parts_.front().uses.size(); ++i) {
    const at::Tensor* base = base_of(parts_, i);
    reduced.uses.push_back(base == nullptr ? at::Tensor() : profile::brought_to(device, *base));
  }
  for (const StepGradients& part : parts_)
    reduced.statistics.insert(part.statistics.begin(), part.statistics.end());
  for (auto& [micro_batch, layers] : reduced.statistics) {
    for (model::BatchStatistics& layer : layers) {
      layer.sum = profile::brought_to(device, layer.sum);
      layer.square_sum = profile::brought_to(device, layer.square_sum);
    }
  }
  return reduced;
}

}  // namespace pp::run
