#include "libplan/price/pricing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "libplan/cost/chain.h"
#include "libplan/cost/links.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/cost/stage_memory.h"
#include "libplan/plan/programs.h"
#include "libplan/price/corrected.h"
#include "libplan/price/tied_copies.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

std::vector<int> stages_of_layers(const PlanGraph& graph, const Assignment& assignment) {
  std::vector<int> stage_of(graph.layers.size(), -1);
  for (int s = 0; s < assignment.stages(); ++s) {
    for (const int layer : assignment.stage_layers[at(s)]) stage_of[at(layer)] = s;
  }
  return stage_of;
}

/// Stages that read the layer's output, ascending, without its own.
std::vector<int> reading_stages(const GraphLayer& layer, int own, const std::vector<int>& stage_of, int last) {
  std::vector<int> readers;
  for (const int consumer : layer.consumers) readers.push_back(stage_of[at(consumer)]);
  if (layer.feeds_loss) readers.push_back(last);
  std::sort(readers.begin(), readers.end());
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  std::erase(readers, own);
  return readers;
}

/// A tensor that leaves its stage.
struct Crossing {
  int from = 0;
  std::vector<int> to;
  std::int64_t bytes = 0;
};

struct Traffic {
  std::map<std::pair<int, int>, StageEdge> edges;
  std::vector<Crossing> crossings;
};

/// The stages of an assignment as one chain, in the order that its plan spells.
struct StagePricing {
  const PricingContext& context;
  const Assignment& assignment;
  std::vector<int> stage_of;  ///< by layer
  Traffic traffic;
  Chain chain;
  std::vector<int> begins;  ///< by stage, its first position; N behind the last
};

Traffic traffic_of(const PlanGraph& graph, const PricedModel& model, const std::vector<int>& stage_of,
                   int stages) {
  Traffic traffic;
  for (int l = 0; l < graph.size(); ++l) {
    const GraphLayer& layer = graph.layers[at(l)];
    const int own = stage_of[at(l)];
    const Bytes size{model.layers[at(l)].output};
    const std::vector<int> readers = reading_stages(layer, own, stage_of, stages - 1);
    for (const int reader : readers) {
      const StageEdge fresh{StageId{own}, StageId{reader}, {}, {}, 0, 0};
      StageEdge& edge = traffic.edges.try_emplace({own, reader}, fresh).first->second;
      edge.activation += size;
      edge.activation_tensors += 1;
      if (layer.has_gradient) edge.gradient += size;
      if (layer.has_gradient) edge.gradient_tensors += 1;
    }
    if (!readers.empty()) traffic.crossings.push_back({own, readers, size.value});
  }
  return traffic;
}

/// The slowest device of each kind among them.
std::map<int, double> slowest_speeds(const Cluster& cluster, const std::vector<int>& devices) {
  std::map<int, double> speeds;
  for (const int position : devices) {
    const Device& device = cluster.devices[at(position)];
    double& slowest = speeds.try_emplace(device.profile, device.speed).first->second;
    slowest = std::min(slowest, device.speed);
  }
  return speeds;
}

/// Whether the programs run the stage again as a whole.
bool has_recompute(const Assignment& assignment, int stage) {
  const auto is_recompute = [&](const Op& op) {
    return op.kind == OpKind::recompute && op.stage == StageId{stage};
  };
  return std::ranges::any_of(assignment.stage_workers[at(stage)], [&](int worker) {
    const WorkerProgram& program = assignment.programs[at(worker)];
    return std::ranges::any_of(program.stream ? program.stream->body : program.program, is_recompute);
  });
}

bool splits_backward(const WorkerProgram& program) {
  const Program& ops = program.stream ? program.stream->body : program.program;
  return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::input_gradient; });
}

/// The most that one micro-batch holds above what is saved where the backward is split, as Chain::transient()
/// counts it where it is whole: in the input gradient of a layer those behind it have freed what does not wait
/// for W. Where that is not known they keep all of it, and no workspace hides in it.
std::int64_t split_workspace(const std::vector<LayerPrice>& prices) {
  std::int64_t saved = 0;
  for (const LayerPrice& price : prices) saved += price.saved;
  std::int64_t reach = saved, kept = saved;
  for (std::size_t p = prices.size(); p-- > 0;) {
    reach = std::max(reach, kept + prices[p].workspace);
    kept += prices[p].waiting.value_or(prices[p].saved) - prices[p].saved;
  }
  return reach - saved;
}

/// Adds the stage's copies of weights that belong to other stages' layers.
void add_copies(const PricingContext& context, const std::vector<int>& stage_of, int stage,
                StageContents& contents) {
  for (const TiedCopies& copies : tied_copies(context.graph, stage_of)) {
    const bool copy = stage_of[at(copies.owner)] != stage && std::ranges::count(copies.stages, stage) > 0;
    if (!copy) continue;
    const GraphLayer& owner = context.graph.layers[at(copies.owner)];
    contents.parameters += owner.parameter_bytes;
    contents.frozen += owner.frozen_bytes;
  }
}

std::vector<int> devices_of(const Assignment& assignment, const std::vector<int>& stages) {
  std::vector<int> devices;
  for (const int stage : stages) {
    for (const int worker : assignment.stage_workers[at(stage)])
      devices.push_back(assignment.worker_devices[at(worker)]);
  }
  return devices;
}

/// What the worker of the stage with most message buffers has in them: tensors that it copies to or from
/// somebody.
std::int64_t buffer_bytes(const PricingContext& context, const Assignment& assignment, const Traffic& traffic,
                          int stage) {
  const std::vector<Device>& devices = context.cluster.devices;
  std::int64_t most = 0;
  for (const int position : devices_of(assignment, {stage})) {
    const auto copies = [&](int other) {
      return std::ranges::any_of(assignment.stage_workers[at(other)], [&](int worker) {
        const int partner = assignment.worker_devices[at(worker)];
        return hand_over(devices[at(position)], devices[at(partner)]) == HandOver::copy;
      });
    };
    std::map<int, bool> copied;
    std::int64_t in = 0, out = 0;
    for (const Crossing& tensor : traffic.crossings) {
      const auto reads_copy = [&](int reader) {
        const auto [found, fresh] = copied.try_emplace(reader);
        if (fresh) found->second = copies(reader);
        return found->second;
      };
      if (tensor.from == stage && std::ranges::any_of(tensor.to, reads_copy)) out += tensor.bytes;
      if (std::ranges::count(tensor.to, stage) > 0 && reads_copy(tensor.from)) in += tensor.bytes;
    }
    most = std::max(most, message_bytes(HandOver::copy, in, out));
  }
  return most;
}

/// Of the stage's layers, and of the loss behind the last stage.
std::vector<LayerPrice> prices_of(const PricingContext& context, const Assignment& assignment, int stage) {
  std::vector<LayerPrice> prices;
  for (const int layer : assignment.stage_layers[at(stage)]) prices.push_back(context.model.layers[at(layer)]);
  if (stage == assignment.stages() - 1) prices.push_back(context.model.loss);
  return prices;
}

bool splits_backward(const Assignment& assignment, int stage) {
  const int worker = assignment.stage_workers[at(stage)].front();
  return splits_backward(assignment.programs[at(worker)]);
}

StageContents contents_of(const StagePricing& pricing, int stage) {
  const auto& [context, assignment, stage_of, traffic, chain, begins] = pricing;
  const int begin = begins[at(stage)], end = begins[at(stage) + 1];
  const LayerSums sums = chain.between(begin, end);
  StageContents contents{.parameters = sums.parameters,
                         .buffers = sums.buffers,
                         .frozen = sums.frozen,
                         .gradients = sums.gradients,
                         .experts = sums.experts,
                         .saved = sums.saved,
                         .entering = chain.entering_bytes(begin, end),
                         .received = chain.in_bytes(begin, end),
                         .kept = chain.kept_bytes(begin, end),
                         .sent = chain.out_bytes(begin, end),
                         .messages = buffer_bytes(context, assignment, traffic, stage),
                         .transient = splits_backward(assignment, stage)
                                          ? split_workspace(prices_of(context, assignment, stage))
                                          : chain.transient(begin, end)};
  add_copies(context, stage_of, stage, contents);
  return contents;
}

/// Of the costs as they are, what the first micro-batch of an update takes; never less than the others, so that
/// bounds need not know it. Nothing where the profile does not tell.
std::optional<FirstTimes> first_times(const PassTimes& extra, const StageCosts& costs, double speed) {
  if (extra == PassTimes{}) return std::nullopt;
  const auto with = [&](Seconds time, double more) { return time + Seconds(std::max(0.0, more / speed)); };
  return FirstTimes{with(costs.forward, extra.forward), with(costs.backward, extra.backward),
                    with(costs.weight_gradient, extra.weight_gradient)};
}

/// Compute of the stage's layers, at the speed of the profile's device.
StageCosts layer_costs(const StagePricing& pricing, const LayerSums& sums, int stage, int kind,
                       Crowding share) {
  const Assignment& assignment = pricing.assignment;
  const PassTimes passes =
      pricing.chain.of_kind(kind).total_passes(pricing.begins[at(stage)], pricing.begins[at(stage) + 1], share);
  const OperationCost& fixed = pricing.context.model.of_kind(kind).fixed;
  StageCosts costs;
  costs.forward = Seconds(fixed.forward + passes.forward);
  costs.backward = Seconds(fixed.backward + passes.backward);
  costs.input_gradient = Seconds(fixed.backward + passes.input_gradient);
  costs.weight_gradient = Seconds(fixed.backward + passes.weight_gradient);
  if (splits_backward(assignment, stage) && sums.unmeasured == 0) costs.waiting = Bytes(sums.waiting);
  if (has_recompute(assignment, stage)) costs.recompute = costs.forward;
  return costs;
}

/// What the simulator is given: per micro-batch and version, not added up.
void set_bytes(StageCosts& costs, const StageBytes& bytes) {
  costs.weights = Bytes(bytes.weights);
  costs.gradients = Bytes(bytes.gradients);
  costs.optimizer = Bytes(bytes.optimizer);
  costs.saved = Bytes(bytes.saved);
  costs.input = Bytes(bytes.input);
  costs.boundary = Bytes(bytes.boundary);
  costs.workspace = Bytes(bytes.workspace);
}

/// Single layers that run again inside B, or I, instead of keeping what they save. A workspace cannot count on
/// hiding in it any more.
void add_recompute(StageCosts& costs, const std::vector<RecomputeUnit>& units, const std::vector<int>& again) {
  for (const RecomputeUnit& unit : units) {
    costs.workspace = std::max(costs.workspace, Bytes(unit.workspace));
    if (std::ranges::count(again, unit.layer) == 0) continue;
    const Bytes released(unit.saved - unit.kept);
    costs.backward += Seconds(unit.forward);
    costs.input_gradient += Seconds(unit.forward);
    costs.saved -= released;
    costs.again = std::max(costs.again, Bytes(unit.saved));
    costs.again_split += std::max(released, Bytes(0));
  }
}

/// Beside the stage's last backward, or the weight gradients that stand for it.
Seconds hideable_of(const PricingContext& context, const Assignment& assignment, int stage, Seconds all_reduce,
                    int kind, double speed) {
  const bool split = splits_backward(assignment, stage);
  std::vector<LayerGradient> layers;
  for (const int layer : assignment.stage_layers[at(stage)]) {
    const LayerPrice& price = context.model.of_kind(kind).layers[at(layer)];
    layers.push_back({(split ? price.weight_gradient : price.backward) / speed,
                      context.graph.layers[at(layer)].trained_bytes()});
  }
  return Seconds(hideable(layers, all_reduce.count()));
}

/// Whether some worker runs this forward of both stages, so that what one leaves to the other waits on the
/// host.
bool hands_to_itself(const Assignment& assignment, StageId from, StageId to) {
  return std::ranges::any_of(assignment.stage_workers[index(from)], [&](int worker) {
    const Program& program = assignment.programs[at(worker)].program;
    const auto forward = [&](StageId stage) {
      return std::ranges::find_if(
          program, [&](const Op& op) { return op.kind == OpKind::forward && op.stage == stage; });
    };
    return forward(from) != program.end() && forward(to) != program.end();
  });
}

/// Swapped weights and state, and the activations and gradients that operations fetch from the host and leave
/// there: inputs that are stashed for a recomputation, and what a worker hands to a later task of its own.
void add_swaps(const StagePricing& pricing, int stage, std::int64_t received, StageCosts& costs) {
  const auto& [context, assignment, stage_of, traffic, chain, begins] = pricing;
  const auto copied = [&](std::int64_t bytes) {
    return Seconds(static_cast<double>(bytes) / context.swap.bandwidth.value);
  };
  costs.load = copied(costs.weights.value);
  costs.load_state = copied(costs.optimizer.value);
  costs.evict = costs.load + costs.load_state;
  std::int64_t stashed = received, forward = 0, backward = 0;
  for (const auto& [ends, edge] : traffic.edges) {
    if (ends.first != stage && ends.second != stage) continue;
    if (!hands_to_itself(assignment, edge.from, edge.to)) continue;
    forward += edge.activation.value;
    backward += edge.gradient.value;
    if (ends.second == stage) stashed -= edge.activation.value;  // the message stays there
  }
  const bool again = costs.recompute > Seconds{};
  costs.forward += copied(forward + (again ? stashed : 0));
  costs.backward += copied(backward);
  if (again) costs.recompute += copied(received);
}

/// What a replica waits for pushes and fetches, per update.
Seconds server_wait(const PricingContext& context, const Assignment& assignment, const StageCosts& costs,
                    std::span<const int> devices, std::int64_t bytes) {
  const ServerWays ways = server_ways(context.cluster, devices);
  const auto weights = static_cast<double>(bytes);
  if (assignment.synchronous) return Seconds(ways.together(weights));
  return Seconds(ways.in_turns(weights, (costs.forward + costs.backward + costs.update).count()));
}

/// On devices of one kind, of which the slowest has this speed.
StageCosts price_stage(const StagePricing& pricing, int stage, int kind, double speed, Crowding share) {
  const PricingContext& context = pricing.context;
  const Assignment& assignment = pricing.assignment;
  const bool reruns_layers = !assignment.recompute.empty() && !assignment.recompute[at(stage)].empty();
  const LayerSums sums =
      pricing.chain.of_kind(kind).total(pricing.begins[at(stage)], pricing.begins[at(stage) + 1]);
  const StageContents contents = contents_of(pricing, stage);
  const bool sharded = assignment.shard == Shard::optimizer;
  const int sharers = sharded ? static_cast<int>(assignment.stage_workers[at(stage)].size()) : 0;
  StageCosts costs = layer_costs(pricing, sums, stage, kind, share);
  costs.versions = versions_kept(assignment.policy, window_of(assignment, stage), assignment.stages(),
                                 assignment.micro_batches);
  set_bytes(costs, stage_bytes(contents, {.versions = costs.versions,
                                          .optimizer = context.optimizer,
                                          .sharers = sharers,
                                          .runs_again = reruns_layers || has_recompute(assignment, stage)}));
  if (reruns_layers) {
    const std::vector<RecomputeUnit> units =
        recompute_units(context.graph, context.model.of_kind(kind).layers, assignment.stage_layers[at(stage)],
                        contents.received);
    add_recompute(costs, units, assignment.recompute[at(stage)]);
  }
  costs.frozen = Bytes(contents.frozen);
  const std::int64_t trained = contents.parameters - contents.frozen;
  const std::vector<int> devices = devices_of(assignment, {stage});
  const TrainedBytes bytes{static_cast<double>(trained), static_cast<double>(contents.experts)};
  OptimizerCost optimizer = context.optimizer_of(kind);
  const bool new_version = holds_versions(assignment.policy) && costs.versions > 1;
  optimizer.pace = new_version ? optimizer.new_version : 1 + share.beside * (optimizer.beside - 1);
  costs.update = Seconds(optimizer.update(bytes, sharers));
  for (Seconds* time : {&costs.forward, &costs.backward, &costs.input_gradient, &costs.weight_gradient,
                        &costs.recompute, &costs.update}) {
    *time /= speed;
  }
  if (assignment.rules == RuleSet::swapped) add_swaps(pricing, stage, contents.received, costs);
  costs.first = first_times(sums.first, costs, speed);
  if (assignment.rules == RuleSet::served) {
    if (has_server(assignment.policy))
      costs.update += server_wait(context, assignment, costs, devices, trained);
    return costs;
  }
  const Reduction reduction =
      context.optimizer.reduction(bytes, static_cast<double>(contents.gradients - trained), sharded);
  costs.all_reduce = all_reduce_time(context.cluster, devices, reduction);
  if (costs.all_reduce > Seconds(0) && context.all_reduce_overlap > 0)
    costs.hideable = hideable_of(context, assignment, stage, costs.all_reduce, kind, speed);
  return costs;
}

/// The longer time of each pass; bytes are the same.
void take_longer(StageCosts& costs, const StageCosts& other) {
  const auto first_of = [](const StageCosts& one) {
    return one.first.value_or(FirstTimes{one.forward, one.backward, one.weight_gradient});
  };
  if (costs.first || other.first) {
    const FirstTimes a = first_of(costs), b = first_of(other);
    costs.first = FirstTimes{std::max(a.forward, b.forward), std::max(a.backward, b.backward),
                             std::max(a.weight_gradient, b.weight_gradient)};
  }
  for (Seconds StageCosts::*time : {&StageCosts::forward, &StageCosts::backward, &StageCosts::input_gradient,
                                    &StageCosts::weight_gradient, &StageCosts::recompute, &StageCosts::update})
    costs.*time = std::max(costs.*time, other.*time);
  costs.hideable = std::min(costs.hideable, other.hideable);
}

/// The stages in turn as one linear order.
std::vector<int> spelled_order(const Assignment& assignment) {
  std::vector<int> order;
  for (const std::vector<int>& layers : assignment.stage_layers)
    order.insert(order.end(), layers.begin(), layers.end());
  return order;
}

StagePricing pricing_of(const PricingContext& context, const Assignment& assignment) {
  std::vector<int> stage_of = stages_of_layers(context.graph, assignment);
  Traffic traffic = traffic_of(context.graph, context.model, stage_of, assignment.stages());
  std::vector<int> begins{0};
  for (const std::vector<int>& layers : assignment.stage_layers)
    begins.push_back(begins.back() + static_cast<int>(layers.size()));
  const auto chain_of = [&](int kind) {
    const PricedModel& model = context.model.of_kind(kind);
    return make_chain(context.graph, spelled_order(assignment), model.layers, model.loss, context.optimizer);
  };
  Chain chain = chain_of(0);
  if (!context.model.others.empty())
    for (int k = 0; k <= std::ssize(context.model.others); ++k) chain.kinds.push_back(chain_of(k));
  return {context, assignment, std::move(stage_of), std::move(traffic), std::move(chain), std::move(begins)};
}

}  // namespace

int window_of(const Assignment& assignment, int stage) {
  int window = 0;
  for (const int worker : assignment.stage_workers[at(stage)])
    window = std::max(window, window_of(assignment.programs[at(worker)], StageId{stage}));
  return window;
}

std::vector<std::vector<RecomputeUnit>> stage_units(const PricingContext& context,
                                                    const Assignment& assignment) {
  const StagePricing pricing = pricing_of(context, assignment);
  std::vector<std::vector<RecomputeUnit>> units;
  for (int s = 0; s < assignment.stages(); ++s) {
    const std::int64_t received = pricing.chain.in_bytes(pricing.begins[at(s)], pricing.begins[at(s) + 1]);
    const int kind = slowest_speeds(context.cluster, devices_of(assignment, {s})).begin()->first;
    units.push_back(recompute_units(context.graph, context.model.of_kind(kind).layers,
                                    assignment.stage_layers[at(s)], received));
  }
  return units;
}

PricedStages price_stages(const PricingContext& context, const Assignment& assignment) {
  const StagePricing pricing = pricing_of(context, assignment);
  std::vector<std::vector<Crowding>> crowding;  // by kind
  for (int k = 0; k <= std::ssize(context.model.others); ++k)
    crowding.push_back(crowding_of_stages(context, assignment, context.model.of_kind(k).profiled_devices));
  PricedStages priced;
  priced.swap = context.swap;
  for (int s = 0; s < assignment.stages(); ++s) {
    std::optional<StageCosts> costs;
    for (const auto& [kind, speed] : slowest_speeds(context.cluster, devices_of(assignment, {s}))) {
      const StageCosts one = price_stage(pricing, s, kind, speed, crowding[at(kind)][at(s)]);
      if (!costs) costs = one;
      take_longer(*costs, one);
    }
    priced.stages.push_back(*costs);
  }
  for (const auto& [ends, edge] : pricing.traffic.edges) priced.edges.push_back(edge);
  for (const TiedCopies& copies : tied_copies(context.graph, pricing.stage_of)) {
    auto& stages = priced.tied.emplace_back();
    for (const int stage : copies.stages) stages.push_back(StageId{stage});
    priced.tied_all_reduce.push_back(
        all_reduce_time(context.cluster, devices_of(assignment, copies.stages),
                        Bytes(context.graph.layers[at(copies.owner)].trained_bytes())));
  }
  return priced;
}

}  // namespace pp::plan
