#include "libprofile/estimate/estimate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/optimizer_table.h"
#include "libprofile/estimate/layer_work.h"
#include "libprofile/estimate/shard_waits.h"
#include "libprofile/estimate/two_queues.h"

namespace pp::profile {
namespace {

constexpr std::int64_t kLargestAutomatic = 1024;

TimeStat exactly(Seconds time) { return {time, time, time, 0}; }
Bytes rounded(double bytes) { return Bytes(std::llround(bytes)); }

/// What tensors can fill of the device. A trainer's plans count the context with their processes.
Bytes tensor_memory(const DeviceSpec& device, bool trained) {
  const Bytes left = trained ? device.memory : device.memory - device.context;
  if (device.memory_rounding == 1) return left;
  return Bytes(static_cast<std::int64_t>(static_cast<double>(left.value) / device.memory_rounding));
}

class Estimate {
 public:
  Estimate(const ModelGraph& model, const DeviceSpec& device, const EstimateOptions& options)
      : model_(resolve(model)),
        device_(device),
        options_(options),
        splits_(split_operations(model_, options.tensor_degree, options.context_degree, options.expert_degree)),
        members_(group_size(options.tensor_degree, options.context_degree, options.expert_degree, 1) /
                 options.tensor_degree),
        rates_{device,
               rates_of(device, options.dtype.dtype),
               rates_of(device, options.dtype),
               options.trainer,
               link(options.tensor_degree, options.tensor_link),
               options.tensor_degree,
               link(options.context_degree, options.context_link),
               link(options.expert_degree, options.expert_link),
               link(options.expert_nodes, std::nullopt)} {
    if (options.expert_degree % options.expert_nodes != 0)
      throw Error(ErrorKind::usage, "--expert-nodes " + std::to_string(options.expert_nodes) +
                                        ": must divide --expert-parallel, " +
                                        std::to_string(options.expert_degree));
    const bool experts = std::ranges::any_of(model_.graph.layers, [](const Layer& layer) {
      const OpRow* row = find_op(layer.op);
      return row != nullptr && row->work.kind == OpWork::Kind::experts;
    });
    has_experts_ = experts && members_ * options.tensor_degree > 1;
    if (experts && options.tensor_degree > 1 && !options.sequence_parallel)
      throw Error(ErrorKind::usage,
                  "members of a tensor group send their positions to experts, of which each has all without "
                  "sequence parallelism; leave out --no-sequence-parallel");
    if (options.expert_degree > 1 && options.shard_group.degree > 1)
      throw Error(ErrorKind::usage,
                  "--shard-degree " + std::to_string(options.shard_group.degree) + " and --expert-parallel " +
                      std::to_string(options.expert_degree) +
                      ": experts that are divided and sharded have no prices yet; leave one out");
  }

  Profile run() {
    Profile profile;
    profile.context = {{"tool", "pp-profile"}, {"version", PP_VERSION}, {"device_spec", device_.name}};
    profile.model = model_.graph;
    profile.model_hash = model_hash(profile.model);
    if (options_.tensor_degree > 1)
      profile.context["sequence_parallel"] = options_.sequence_parallel ? "true" : "false";
    if (options_.checkpoint == Checkpoint::attention) profile.context["checkpoint"] = "attention";
    profile.device = {.kind = device_.kind, .name = device_.name, .memory = device_.memory};
    profile.device.memory = tensor_memory(device_, !options_.trainer.name.empty());
    if (!options_.trainer.name.empty()) {
      profile.trainer = options_.trainer;
      profile.trainer->process += device_.context;
    }
    profile.device.cores_per_device = device_.kind == DeviceKind::cpu ? 1 : 0;
    profile.device.peak_flops_per_s = rates_.narrow.product_flops_per_s;
    profile.dtype = options_.dtype.dtype;
    profile.products = options_.dtype.products;
    profile.mode = ProfileMode::estimated;
    profile.tensor_degree = options_.tensor_degree;
    const int context = options_.context_degree, experts = options_.expert_degree;
    if (context > 1)
      profile.context_parallel = {.degree = context,
                                  .sum_s_per_byte = sum_per_byte(context, rates_.context_link)};
    if (has_experts_) {
      const Link& among = experts > 1 ? rates_.expert_link : rates_.context_link;
      profile.expert_parallel = {
          .degree = experts,
          .sum_s_per_byte = sum_per_byte(members_, among),
          .expert_sum_s_per_byte = sum_per_byte(members_ * options_.tensor_degree / experts,
                                                context > 1 ? rates_.context_link : rates_.tensor_link)};
    }
    profile.shard_group = options_.shard_group;
    std::size_t operation = 0;
    for (int l = 0; l < model_.layer_count(); ++l) {
      profile.layers.push_back(layer(l, operation));
      operation += std::max<std::size_t>(1, model_.layers[static_cast<std::size_t>(l)].nodes.size());
    }
    if (options_.shard_group.degree > 1) shard(profile);
    if (model_.graph.loss) {
      LayerProfile& loss = profile.loss.emplace();
      loss.name = "loss";
      loss.forward_flops_per_sample = model_.loss.forward_flops;
    }
    choose_sizes(profile);
    for (const OptimizerRow& row : kOptimizerRows) profile.optimizers.push_back(update(profile, row));
    profile.estimated = {"forward_s",   "backward_s",      "input_gradient_s", "weight_gradient_s",
                         "saved_bytes", "workspace_bytes", "update_s"};
    if (options_.checkpoint == Checkpoint::blocks) profile = with_checkpoints(std::move(profile));
    for (std::size_t p = 0; p < waits_.size(); ++p)
      for (std::size_t l = 0; l < profile.layers.size(); ++l)
        add_wait(profile.layers[l].points[p], waits_[p][l]);
    return profile;
  }

 private:
  /// The sum of gradients over so many members: what no backward hides.
  double sum_per_byte(int members, const Link& link) const {
    return (1 - options_.trainer.hidden_gradients) * 2.0 * (members - 1) / members * occupancy(1, link);
  }

  Link link(int degree, const std::optional<Link>& given) const {
    if (degree == 1) return {};
    if (given) return *given;
    if (options_.tensor_link) return *options_.tensor_link;
    if (device_.tensor_link) return *device_.tensor_link;
    throw Error(ErrorKind::usage, "device " + device_.name + " does not say how the " + std::to_string(degree) +
                                      " devices of a group are linked; give --tensor-link, such as "
                                      "300GB/s, or add tensor_link to its file");
  }

  /// `operation`: its first.
  LayerProfile layer(int index, std::size_t operation) const {
    const ResolvedLayer& resolved = model_.layers[static_cast<std::size_t>(index)];
    LayerProfile layer;
    layer.name = model_.graph.layers[static_cast<std::size_t>(index)].name;
    set_parameters(layer, model_, index, options_.dtype.dtype);
    divide_parameters(layer, index, operation);
    for (const ParameterSpec& buffer : resolved.buffers)
      layer.buffers += Bytes(element_count(buffer.shape) * size_of(buffer.dtype));
    layer.forward_flops_per_sample = resolved.forward_flops;
    return layer;
  }

  /// Leaves what a member holds.
  void divide_parameters(LayerProfile& layer, int index, std::size_t operation) const {
    const ResolvedLayer& resolved = model_.layers[static_cast<std::size_t>(index)];
    const bool divided = options_.tensor_degree > 1 || options_.expert_degree > 1 || has_experts_;
    if (!divided || layer.parameter_count == 0) return;
    const std::vector<double> held = member_elements(model_, index, splits_, operation);
    double all = 0, trained = 0, experts = 0;
    for (std::size_t p = 0; p < held.size(); ++p) {
      all += held[p];
      trained += resolved.trained[p] ? held[p] : 0;
      experts += resolved.trained[p] && is_of_experts(resolved.parameters[p]) ? held[p] : 0;
    }
    const double size = static_cast<double>(size_of(options_.dtype.dtype));
    layer.parameter_count = std::llround(all);
    layer.parameters = rounded(all * size);
    if (layer.trained) layer.trained = rounded(trained * size);
    layer.experts = rounded(experts * size);
  }

  /// Leaves of each layer what a member holds between passes.
  void shard(Profile& profile) {
    std::vector<double> weights, trained;
    for (const LayerProfile& layer : profile.layers) {
      weights.push_back(static_cast<double>(layer.parameters.value));
      trained.push_back(static_cast<double>(trained_bytes(layer).value));
    }
    units_ = shard_units(model_, weights, trained, sent_of_gradients(options_.trainer, options_.dtype.dtype));
    const double part = 1.0 / options_.shard_group.degree;
    const auto divide = [&](Bytes& bytes) { bytes = rounded(part * static_cast<double>(bytes.value)); };
    for (const ShardUnit& unit : units_) {
      for (int l = unit.begin; l < unit.end; ++l) {
        LayerProfile& layer = profile.layers[at(l)];
        if (unit.stays(options_.shard_group.sharding)) layer.buffers += rounded((1 - part) * weights[at(l)]);
        divide(layer.parameters);
        if (layer.trained) divide(*layer.trained);
        layer.parameter_count = std::llround(part * static_cast<double>(layer.parameter_count));
      }
    }
  }

  /// Beside a layer's own: two units' weights, and the gradients of one.
  void add_shards(Profile& profile, std::span<const LayerTime> times) {
    const double others = 1 - 1.0 / options_.shard_group.degree;
    for (const ShardUnit& unit : units_) {
      const double held = unit.stays(options_.shard_group.sharding) ? 0 : 2 * others * unit.gathered;
      for (int l = unit.begin; l < unit.end; ++l)
        profile.layers[at(l)].points.back().workspace += rounded(held + unit.gradients);
    }
    waits_.push_back(shard_waits(times, units_,
                                 {.group = options_.shard_group,
                                  .link = link(options_.shard_group.degree, options_.shard_link),
                                  .again = options_.checkpoint == Checkpoint::blocks,
                                  .contention = options_.trainer.contention}));
  }

  static void add_wait(LayerPoint& point, const LayerTime& wait) {
    point.forward = exactly(point.forward.median + wait.forward);
    point.backward = exactly(point.backward.median + wait.input_gradient);
    point.input_gradient = exactly(point.input_gradient->median + wait.input_gradient);
  }

  std::vector<LayerWork> works(std::int64_t size) const {
    ExpertKernels experts = options_.trainer.experts;
    experts.imbalance = options_.expert_imbalance.value_or(experts.imbalance);
    return layer_work(model_, splits_,
                      {.kind = device_.kind,
                       .dtype = options_.dtype,
                       .recipe = recipe_of(options_.trainer, options_.dtype),
                       .micro_batch_size = size,
                       .tensor_degree = options_.tensor_degree,
                       .context_degree = options_.context_degree,
                       .expert_degree = options_.expert_degree,
                       .expert_nodes = options_.expert_nodes,
                       .shard_degree = options_.shard_group.degree,
                       .experts = experts,
                       .sequence_parallel = options_.sequence_parallel,
                       .attention = options_.trainer.attention,
                       .elements = options_.trainer.elements,
                       .recompute_attention = options_.checkpoint == Checkpoint::attention,
                       .logit_bytes = options_.trainer.logit_bytes});
  }

  void choose_sizes(Profile& profile) {
    // Groups with samples of their own.
    const std::int64_t together = members_ / options_.context_degree * options_.shard_group.degree;
    if (!options_.automatic_sizes) {
      const auto& sizes = options_.micro_batch_sizes;
      if (sizes.empty() || std::ranges::adjacent_find(sizes, std::greater_equal()) != sizes.end()) {
        throw Error(ErrorKind::usage,
                    "micro-batch sizes " + to_text(sizes) + " must rise, each once; give them like 1,2,4");
      }
      for (const std::int64_t size : sizes) add_points(profile, together * size, works(together * size));
      return;
    }
    for (std::int64_t size = together; size <= together * kLargestAutomatic; size *= 2) {
      const std::vector<LayerWork> all = works(size);
      const bool fits = std::ranges::all_of(all, [&](const LayerWork& work) {
        const double bytes = work.saved + work.output + work.workspace;
        return device_.memory.value == 0 || bytes <= static_cast<double>(profile.device.memory.value);
      });
      if (!fits && size > together) return;
      add_points(profile, size, all);
    }
  }

  void add_points(Profile& profile, std::int64_t size, const std::vector<LayerWork>& works) {
    const bool first = profile.micro_batch_sizes.empty();
    profile.micro_batch_sizes.push_back(size);
    const std::vector<LayerTime> times = layer_times(works, rates_);
    for (std::size_t l = 0; l < profile.layers.size(); ++l) {
      profile.layers[l].points.push_back(point(works[l], times[l], size));
      if (first) profile.layers[l].buffers += rounded(works[l].copies);
    }
    if (profile.loss) profile.loss->points.push_back(point(works.back(), times.back(), size));
    if (!units_.empty()) add_shards(profile, times);
  }

  static LayerPoint point(const LayerWork& work, const LayerTime& time, std::int64_t size) {
    LayerPoint point;
    point.micro_batch_size = size;
    point.forward = exactly(time.forward);
    point.backward = exactly(time.input_gradient + time.weight_gradient);
    point.input_gradient = exactly(time.input_gradient);
    point.weight_gradient = exactly(time.weight_gradient);
    point.output = rounded(work.message);
    point.saved = rounded(work.saved);
    point.saved_input = std::min(rounded(work.saved_input), point.saved);
    point.workspace = rounded(work.workspace);
    return point;
  }

  /// Reads and writes weights and state, reads the gradients and clears them.
  OptimizerProfile update(const Profile& profile, const OptimizerRow& optimizer) const {
    OptimizerProfile result;
    result.name = optimizer.text;
    result.state_bytes_per_parameter_byte = state_ratio_of(optimizer.name);
    for (const LayerProfile& layer : profile.layers) result.parameters += trained_bytes(layer);
    const double touched =
        (4 + 2 * result.state_bytes_per_parameter_byte) * static_cast<double>(result.parameters.value);
    // Two points, as of a profile with parts, say what an update takes whatever its size.
    const auto time = [&](double bytes) {
      return exactly(options_.trainer.update +
                     time_of({.kind = WorkKind::product, .bytes = bytes, .kernels = 1}, device_, rates_.rates));
    };
    result.update = time(touched);
    if (options_.trainer.update > Seconds{} && result.parameters.value > 1) {
      const Bytes half(result.parameters.value / 2);
      const double per_byte = touched / static_cast<double>(result.parameters.value);
      result.parts = {{half, time(per_byte * static_cast<double>(half.value))},
                      {result.parameters, time(touched)}};
    }
    return result;
  }

  ResolvedModel model_;
  const DeviceSpec& device_;
  const EstimateOptions& options_;
  std::vector<OperationSplit> splits_;
  int members_;                                ///< that have the same weights but for experts
  bool has_experts_ = false;                   ///< in a group
  std::vector<ShardUnit> units_;               ///< of a shard group
  std::vector<std::vector<LayerTime>> waits_;  ///< by size, layer by layer
  PassRates rates_;
};

}  // namespace

Profile estimate_profile(const ModelGraph& model, const DeviceSpec& device, const EstimateOptions& options) {
  return Estimate(model, device, options).run();
}

}  // namespace pp::profile
