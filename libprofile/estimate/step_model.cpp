#include "libprofile/estimate/step_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/estimate/two_queues.h"

namespace pp::profile {
namespace {

/// Per parameter of a run: the bytes of its weight and of its gradient, and those that Adam touches: weights,
/// gradients and both moments twice; with float32 beside half weights as libplan's OptimizerCost has it.
struct ParameterBytes {
  double weight, gradient, touched;
};
ParameterBytes bytes_of(const MeasuredRun& run, const TrainerSpec& trainer) {
  const double size = static_cast<double>(size_of(run.dtype.dtype));
  if (run.precision != "mixed" || size >= 4) return {size, size, 8 * size};
  const double gradient = trainer.gradients == GradientType::float32 ? 4 : size;
  return {size, gradient, gradient + 24 + size};
}

/// What passes between the devices of a run in nodes: devices stand stage by stage, replicas side by side,
/// members of a tensor group innermost.
struct Ways {
  const MeasuredRun& run;
  Link inside;

  int group() const { return run.tensor_degree * run.context_degree; }
  int stage() const { return group() * run.replicas; }
  bool leaves_node(int devices) const { return run.card.bandwidth.value > 0 && devices > run.node; }
  /// What so many senders of a node take at once.
  double between(double bytes, int senders) const { return occupancy(bytes * senders / run.cards, run.card); }

  /// All members of the node's stage send.
  double message(double bytes) const {
    if (run.stages == 1) return 0;
    const int senders = std::min(stage(), run.node);
    if (!leaves_node(stage() * run.stages) || stage() * 2 <= run.node) return transfer_time(bytes, 1, inside);
    return run.card.latency.count() + between(bytes, senders);
  }
  /// What so many neighbours of a node have between them.
  Link among(int devices) const {
    if (!leaves_node(devices)) return inside;
    return {.bandwidth = run.cards * run.card.bandwidth, .latency = run.card.latency};
  }
  /// The members of a context group all have their cards at once.
  Link context() const {
    if (!leaves_node(group())) return inside;
    return {.bandwidth = BytesPerSecond(run.cards * run.card.bandwidth.value / run.node),
            .latency = run.card.latency};
  }
  /// Members of a group of whole nodes get the same bytes, which each node receives once.
  Link shards() const {
    return leaves_node(group() * run.shard_group.degree)
               ? Link{.bandwidth = run.cards * run.card.bandwidth, .latency = run.card.latency}
               : inside;
  }
  /// A ring of replicas for each member of a group, all over the node's cards.
  double sum(double bytes, double calls) const {
    const int replicas = run.replicas / run.shard_group.degree;
    if (replicas == 1) return 0;
    const double ring = 2.0 * (replicas - 1), share = ring / replicas;
    if (!leaves_node(stage())) return calls * ring * inside.latency.count() + share * occupancy(bytes, inside);
    const int rings = std::min(group() * run.shard_group.degree, run.node);
    return calls * ring * run.card.latency.count() + share * between(bytes, rings);
  }
};

/// What stands before the first block is part of the first stage, what stands behind a block of that block's.
/// Where two blocks more would divide, the first stage and the last have one less.
std::vector<int> stages_of(const ModelGraph& model, const MeasuredRun& run) {
  const std::vector<Block> blocks = blocks_of(model);
  const int count = static_cast<int>(blocks.size());
  const int parts = run.stages * run.chunks, less = count % parts == 0 ? 0 : 1;
  const int each = (count + 2 * less) / run.stages;
  if (parts > 1 && (count == 0 || (count + 2 * less) % parts != 0 || each <= less)) {
    throw Error(ErrorKind::usage, "line " + std::to_string(run.line) + ": " + std::to_string(parts) +
                                      " stages do not divide the " + std::to_string(count) + " blocks of " +
                                      model.name + "; only runs in equal stages can be fitted");
  }
  std::vector<int> stages(model.layers.size(), 0);
  if (run.stages == 1) return stages;
  for (int b = each - less; b < count; ++b)
    std::fill(stages.begin() + blocks[at(b)].begin, stages.end(), (b + less) / each);
  return stages;
}

}  // namespace

StepWork step_work(const ModelGraph& graph, const MeasuredRun& run, const TrainerSpec& trainer) {
  const ResolvedModel model = resolve(graph);
  const std::vector<OperationSplit> splits = split_operations(model, run.tensor_degree, run.context_degree);
  StepWork step;
  step.run = run;
  step.works = layer_work(model, splits,
                          {.dtype = run.dtype,
                           .recipe = recipe_of(trainer, run.dtype),
                           .micro_batch_size = run.micro_batch,
                           .tensor_degree = run.tensor_degree,
                           .context_degree = run.context_degree,
                           .sequence_parallel = run.sequence_parallel,
                           .attention = trainer.attention,
                           .logit_bytes = trainer.logit_bytes});
  step.stage_of = stages_of(model.graph, run);
  step.in_block.assign(step.works.size(), false);
  for (const Block& block : blocks_of(model.graph))
    std::fill(step.in_block.begin() + block.begin, step.in_block.begin() + block.end, true);
  step.stage_parameters.assign(at(run.stages), 0);
  std::size_t operation = 0;
  std::vector<double> parameters(at(model.layer_count()), 0);
  for (int l = 0; l < model.layer_count(); ++l) {
    if (model.layers[at(l)].weights_layer == l) {
      const std::vector<double> held = member_elements(model, l, splits, operation);
      parameters[at(l)] = std::accumulate(held.begin(), held.end(), 0.0);
      step.stage_parameters[at(step.stage_of[at(l)])] += parameters[at(l)];
    }
    operation += std::max<std::size_t>(1, model.layers[at(l)].nodes.size());
    if (step.stage_of[at(l)] == 0) step.message = step.works[at(l)].message;
  }
  if (run.shard_group.degree > 1) {
    const auto size = static_cast<double>(size_of(run.dtype.dtype));
    for (double& elements : parameters) elements *= size;
    step.units = shard_units(model, parameters, parameters, sent_of_gradients(trainer, run.dtype.dtype));
  }
  return step;
}

Seconds step_time(const StepWork& step, const DeviceSpec& device, const TrainerSpec& trainer) {
  const MeasuredRun& run = step.run;
  Link inside = device.tensor_link.value_or(Link{});
  if (run.link.value > 0) inside.bandwidth = run.link;
  const Ways ways{run, inside};
  const TypeRates& rates = rates_of(device, run.dtype.dtype);
  const std::vector<LayerTime> times =
      layer_times(step.works, {device, rates, rates_of(device, run.dtype), trainer,
                               ways.among(run.tensor_degree), run.tensor_degree, ways.context()});
  const ShardWays shards{.group = run.shard_group,
                         .link = ways.shards(),
                         .again = run.recompute,
                         .contention = trainer.contention};
  const std::vector<LayerTime> waits = shard_waits(times, step.units, shards);
  std::vector<double> stages(at(run.stages), 0), backwards(at(run.stages), 0);
  for (std::size_t l = 0; l < times.size(); ++l) {
    const std::size_t stage = at(l < step.stage_of.size() ? step.stage_of[l] : run.stages - 1);
    const double forward = times[l].forward.count();
    const double backward = (run.recompute && step.in_block[l] ? forward : 0) +
                            (times[l].input_gradient + times[l].weight_gradient).count();
    stages[stage] += forward + backward + (waits[l].forward + waits[l].input_gradient).count();
    backwards[stage] += backward;
  }
  const double slowest = *std::ranges::max_element(stages);
  const double others = std::accumulate(stages.begin(), stages.end(), 0.0) - slowest;
  const double message = 2 * ways.message(step.message);
  const double parameters = *std::ranges::max_element(step.stage_parameters) / run.shard_group.degree;
  const ParameterBytes each = bytes_of(run, trainer);
  const double summed = parameters * (run.sharded ? (each.gradient + each.weight) / 2 : each.gradient);
  const double calls =
      trainer.bucket > Bytes(0) ? std::ceil(summed / static_cast<double>(trainer.bucket.value)) : 1;
  const double context = 2.0 * (run.context_degree - 1) / run.context_degree;
  const double sum = ways.sum(summed / run.context_degree, calls) + context * occupancy(summed, ways.context());
  const double hidden = std::min(sum, trainer.hidden_gradients * *std::ranges::max_element(backwards));
  const Work touched{.kind = WorkKind::product,
                     .bytes = each.touched * parameters /
                              (run.sharded && run.replicas > 1 ? run.replicas * run.context_degree : 1),
                     .kernels = 1};
  return Seconds(run.micro_batches * (slowest + run.chunks * message) + others / run.chunks +
                 (run.stages - 2) * message + sum - hidden) +
         trainer.update + time_of(touched, device, rates);
}

}  // namespace pp::profile
