#include "libprofile/estimate/step_model.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/estimate/blocks.h"
#include "libprofile/estimate/two_queues.h"

namespace pp::profile {
namespace {

/// Bytes that Adam touches per byte of parameters: weights and gradients twice, both moments read and written.
constexpr double kUpdateTouches = 8;

/// What stands before the first block is part of the first stage, what stands behind a block of that block's.
std::vector<int> stages_of(const ModelGraph& model, const MeasuredRun& run) {
  const std::vector<Block> blocks = blocks_of(model);
  const int count = static_cast<int>(blocks.size());
  if (run.stages > 1 && (count == 0 || count % run.stages != 0)) {
    throw Error(ErrorKind::usage, "line " + std::to_string(run.line) + ": " + std::to_string(run.stages) +
                                      " stages do not divide the " + std::to_string(count) + " blocks of " +
                                      model.name + "; only runs in equal stages can be fitted");
  }
  std::vector<int> stages(model.layers.size(), 0);
  if (run.stages == 1) return stages;
  for (int b = count / run.stages; b < count; ++b)
    std::fill(stages.begin() + blocks[at(b)].begin, stages.end(), b / (count / run.stages));
  return stages;
}

}  // namespace

StepWork step_work(const ModelGraph& graph, const MeasuredRun& run) {
  const ResolvedModel model = resolve(graph);
  const std::vector<OperationSplit> splits = split_operations(model, run.tensor_degree);
  StepWork step;
  step.run = run;
  step.works = layer_work(model, splits,
                          {.dtype = run.dtype,
                           .micro_batch_size = run.micro_batch,
                           .tensor_degree = run.tensor_degree,
                           .sequence_parallel = run.sequence_parallel});
  step.stage_of = stages_of(model.graph, run);
  step.in_block.assign(step.works.size(), false);
  for (const Block& block : blocks_of(model.graph))
    std::fill(step.in_block.begin() + block.begin, step.in_block.begin() + block.end, true);
  step.stage_parameters.assign(at(run.stages), 0);
  std::size_t operation = 0;
  for (int l = 0; l < model.layer_count(); ++l) {
    if (model.layers[at(l)].weights_layer == l) {
      const std::vector<double> held = member_elements(model, l, splits, operation);
      step.stage_parameters[at(step.stage_of[at(l)])] +=
          std::accumulate(held.begin(), held.end(), 0.0) * static_cast<double>(size_of(run.dtype));
    }
    operation += std::max<std::size_t>(1, model.layers[at(l)].nodes.size());
    if (step.stage_of[at(l)] == 0) step.message = step.works[at(l)].output;
  }
  return step;
}

Seconds step_time(const StepWork& step, const DeviceSpec& device) {
  const MeasuredRun& run = step.run;
  const Link link = device.tensor_link.value_or(Link{});
  const TypeRates& rates = rates_of(device, run.dtype);
  const std::vector<LayerTime> times = layer_times(step.works, {device, rates, link, run.tensor_degree});
  std::vector<double> stages(at(run.stages), 0);
  for (std::size_t l = 0; l < times.size(); ++l) {
    const int stage = l < step.stage_of.size() ? step.stage_of[l] : run.stages - 1;
    const double forward = times[l].forward.count();
    stages[at(stage)] += (run.recompute && step.in_block[l] ? 2 : 1) * forward +
                         (times[l].input_gradient + times[l].weight_gradient).count();
  }
  const double slowest = *std::ranges::max_element(stages);
  const double all = std::accumulate(stages.begin(), stages.end(), 0.0);
  const double message = run.stages > 1 ? 2 * transfer_time(step.message, 1, link) : 0;
  const double parameters = *std::ranges::max_element(step.stage_parameters);
  const double ring = 2.0 * (run.replicas - 1);
  const double reduced = ring / run.replicas * occupancy(parameters, link) + ring * link.latency.count();
  const Work touched{.kind = WorkKind::product, .bytes = kUpdateTouches * parameters, .kernels = 1};
  return Seconds((run.micro_batches - 1) * (slowest + message) + all + (run.stages - 1) * message + reduced) +
         device.update + time_of(touched, device, rates);
}

}  // namespace pp::profile
