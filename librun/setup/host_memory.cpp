#include "librun/setup/host_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "libprofile/core/error.h"
#include "librun/swap/residency.h"

namespace pp::run {
namespace {

double elements(const Shape& shape) {
  double count = 1;
  for (const std::int64_t size : shape) count *= static_cast<double>(size);
  return count;
}

double bytes(const TensorType& type, DType dtype) {
  return elements(type.shape) * static_cast<double>(size_of(is_floating(type.dtype) ? dtype : type.dtype));
}

/// Elements of the parameters with what trains them, `copies` of a trained one.
double parameters(const ResolvedLayer& layer, double copies) {
  double count = 0;
  for (std::size_t i = 0; i < layer.parameters.size(); ++i)
    count += elements(layer.parameters[i].shape) * (layer.trained[i] ? copies : 1);
  return count;
}

std::string text(double bytes) {
  constexpr double kLargest = 9e18;
  return to_text(Bytes(static_cast<std::int64_t>(std::min(bytes, kLargest))));
}

}  // namespace

double synthetic_sample_bytes(const ModelGraph& graph) {
  double sum = 0;
  for (const auto* tensors : {&graph.inputs, &graph.targets}) {
    for (const DataTensor& tensor : *tensors) {
      sum += elements(tensor.type.shape) * (is_floating(tensor.type.dtype) ? 4 : 8);
    }
  }
  return sum;
}

HostNeed least_host_memory(const plan::Plan& plan, const ResolvedModel& model, std::span<const Device> devices,
                           double data, double copies, const Placement& placement) {
  HostNeed need;
  need.data = data * placement.processes();
  need.trains = copies > 1;
  const int micro_batch = std::max(1, plan.training.mini_batch / plan.training.micro_batches);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::Stage& stage = plan.stages[s];
    const StageId stage_id{static_cast<int>(s)};
    const bool divided = plan.training.shard == plan::Shard::optimizer;
    const double held =
        divided && need.trains ? 2 + (copies - 2) / static_cast<double>(stage.workers.size()) : copies;
    double state = 0;
    double largest = 0;
    for (std::size_t l = 0; l < model.layers.size(); ++l) {
      if (std::ranges::count(stage.layers, model.graph.layers[l].name) == 0) continue;
      const ResolvedLayer& layer = model.layers[l];
      state += parameters(layer, held) * static_cast<double>(size_of(plan.training.dtype));
      for (const TensorType& output : layer.outputs)
        largest = std::max(largest, micro_batch * bytes(output, plan.training.dtype));
    }
    for (const WorkerId worker : stage.workers) {
      if (devices[index(worker)].kind != DeviceKind::cpu || !placement.shares_memory(worker)) continue;
      if (swaps(plan) && home_of(plan, stage_id, worker) != worker) continue;
      need.state += state;
      need.activations += largest;
    }
  }
  return need;
}

void check_host_memory(const HostNeed& need, Bytes available) {
  if (need.sum() <= static_cast<double>(available.value)) return;
  const bool samples = need.data >= need.state + need.activations;
  const bool weights = need.state >= need.activations;
  throw Error(ErrorKind::device, "the run needs at least " + text(need.sum()) + " of host memory (data " +
                                     text(need.data) + ", weights" +
                                     (need.trains ? " with gradients and optimizer state " : " ") +
                                     text(need.state) + ", activations " + text(need.activations) + "), " +
                                     to_text(available) + " are available; " +
                                     (samples   ? "use fewer or smaller samples"
                                      : weights ? "use a smaller model or fewer replicas on this machine"
                                                : "use smaller micro-batches"));
}

}  // namespace pp::run
