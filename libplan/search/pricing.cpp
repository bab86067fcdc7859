#include "libplan/search/pricing.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "libplan/cost/bucket_scan.h"
#include "libplan/cost/kept_inputs.h"
#include "libplan/cost/links.h"
#include "libplan/cost/stage_bytes.h"
#include "libplan/plan_windows.h"
#include "libplan/schedule/versions.h"
#include "libplan/search/crowding.h"
#include "libplan/search/tied_copies.h"

namespace pp::plan {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

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
  std::vector<std::int64_t> in, out;
  std::vector<std::int64_t> kept;  ///< the part of `in` that a forward may leave behind (kept_inputs.h)
};

Traffic traffic_of(const PlanGraph& graph, const PricedModel& model, const std::vector<int>& stage_of,
                   int stages) {
  Traffic traffic;
  traffic.in.assign(at(stages), 0);
  traffic.out.assign(at(stages), 0);
  traffic.kept.assign(at(stages), 0);
  const std::vector<bool> kept = may_be_kept(graph, model.layers);
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
      traffic.in[at(reader)] += size.value;
      if (kept[at(l)]) traffic.kept[at(reader)] += size.value;
    }
    if (readers.empty()) continue;
    traffic.out[at(own)] += size.value;
    traffic.crossings.push_back({own, readers, size.value});
  }
  return traffic;
}

/// The part of what the stage's layers keep that is a tensor from another stage.
std::int64_t saved_elsewhere(const PricingContext& context, const std::vector<int>& stage_of, int stage,
                             int layer) {
  std::int64_t outside = 0;
  for (const int producer : context.graph.layers[at(layer)].producers) {
    if (stage_of[at(producer)] != stage) outside += context.model.layers[at(producer)].output;
  }
  return std::min(context.model.layers[at(layer)].saved_input, outside);
}

double slowest_speed(const Cluster& cluster, const std::vector<int>& devices) {
  double speed = cluster.devices[at(devices.front())].speed;
  for (const int device : devices) speed = std::min(speed, cluster.devices[at(device)].speed);
  return speed;
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

/// Between I and W; nothing when a layer's was not measured.
std::optional<Bytes> waiting_bytes(const std::vector<LayerPrice>& prices) {
  Bytes sum;
  for (const LayerPrice& price : prices) {
    if (!price.waiting) return std::nullopt;
    sum += Bytes(*price.waiting);
  }
  return sum;
}

/// The most that one micro-batch holds above what is saved, as Chain::transient() counts it: in the backward of
/// a layer those behind it have freed what they saved, or with a split backward what does not wait for W. Where
/// that is not known they keep all of it, and no workspace hides in it.
std::int64_t workspace_beyond_saved(const std::vector<LayerPrice>& prices, bool split) {
  std::int64_t saved = 0;
  for (const LayerPrice& price : prices) saved += price.saved;
  std::int64_t reach = saved, kept = saved;
  for (std::size_t p = prices.size(); p-- > 0;) {
    reach = std::max(reach, kept + prices[p].workspace);
    kept -= prices[p].saved;
    if (split) kept += prices[p].waiting.value_or(prices[p].saved);
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
      return std::ranges::any_of(devices_of(assignment, {other}), [&](int partner) {
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

StageContents contents_of(const PricingContext& context, const Assignment& assignment,
                          const std::vector<int>& stage_of, const Traffic& traffic, int stage) {
  const std::vector<LayerPrice> prices = prices_of(context, assignment, stage);
  StageContents contents{.received = traffic.in[at(stage)],
                         .kept = traffic.kept[at(stage)],
                         .sent = traffic.out[at(stage)],
                         .messages = buffer_bytes(context, assignment, traffic, stage),
                         .transient = workspace_beyond_saved(prices, splits_backward(assignment, stage))};
  add_copies(context, stage_of, stage, contents);
  for (const LayerPrice& price : prices) contents.saved += price.saved;
  for (const int layer : assignment.stage_layers[at(stage)]) {
    contents.parameters += context.graph.layers[at(layer)].parameter_bytes;
    contents.frozen += context.graph.layers[at(layer)].frozen_bytes;
    contents.gradients += context.graph.layers[at(layer)].gradient_bytes();
    contents.buffers += context.graph.layers[at(layer)].buffer_bytes;
    contents.entering += saved_elsewhere(context, stage_of, stage, layer);
  }
  return contents;
}

/// Of the costs as they are, what the first micro-batch of an update takes; never less than the others, so that
/// bounds need not know it. Nothing where the profile does not tell.
std::optional<FirstTimes> first_times(const PricingContext& context, const Assignment& assignment, int stage,
                                      const StageCosts& costs, double speed) {
  ExtraTimes sum;
  for (const LayerPrice& price : prices_of(context, assignment, stage)) {
    sum.forward += price.first.forward;
    sum.backward += price.first.backward;
    sum.weight_gradient += price.first.weight_gradient;
  }
  if (sum == ExtraTimes{}) return std::nullopt;
  const auto with = [&](Seconds time, double extra) { return time + Seconds(std::max(0.0, extra / speed)); };
  return FirstTimes{with(costs.forward, sum.forward), with(costs.backward, sum.backward),
                    with(costs.weight_gradient, sum.weight_gradient)};
}

/// Compute of the stage's layers, at the speed of the profile's device.
StageCosts layer_costs(const PricingContext& context, const Assignment& assignment, int stage, Crowding share) {
  StageCosts costs;
  costs.forward = Seconds(context.model.fixed.forward);
  costs.backward = costs.input_gradient = costs.weight_gradient = Seconds(context.model.fixed.backward);
  const std::vector<LayerPrice> prices = prices_of(context, assignment, stage);
  for (const LayerPrice& price : prices) {
    const auto time = [&](double LayerPrice::*part, double ExtraTimes::*rest) {
      return Seconds(price.*part + share.own * price.crowded.*rest + share.beside * price.beside.*rest);
    };
    costs.forward += time(&LayerPrice::forward, &ExtraTimes::forward);
    costs.backward += time(&LayerPrice::backward, &ExtraTimes::backward);
    costs.input_gradient += time(&LayerPrice::input_gradient, &ExtraTimes::input_gradient);
    costs.weight_gradient += time(&LayerPrice::weight_gradient, &ExtraTimes::weight_gradient);
  }
  if (splits_backward(assignment, stage)) costs.waiting = waiting_bytes(prices);
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
                    double speed) {
  const bool split = splits_backward(assignment, stage);
  std::vector<LayerGradient> layers;
  for (const int layer : assignment.stage_layers[at(stage)]) {
    const LayerPrice& price = context.model.layers[at(layer)];
    layers.push_back({(split ? price.weight_gradient : price.backward) / speed,
                      context.graph.layers[at(layer)].trained_bytes()});
  }
  return Seconds(hideable(layers, all_reduce.count()));
}

/// Whether some worker runs this forward of both stages, so that what one leaves to the other waits on the
/// host.
bool hands_to_itself(const Assignment& assignment, StageId from, StageId to) {
  return std::ranges::any_of(assignment.programs, [&](const WorkerProgram& worker) {
    const Program& program = worker.program;
    const auto forward = [&](StageId stage) {
      return std::ranges::find_if(
          program, [&](const Op& op) { return op.kind == OpKind::forward && op.stage == stage; });
    };
    return forward(from) != program.end() && forward(to) != program.end();
  });
}

/// Swapped weights and state, and the activations and gradients that operations fetch from the host and leave
/// there: inputs that are stashed for a recomputation, and what a worker hands to a later task of its own.
void add_swaps(const PricingContext& context, const Assignment& assignment, const Traffic& traffic, int stage,
               StageCosts& costs) {
  const auto copied = [&](std::int64_t bytes) {
    return Seconds(static_cast<double>(bytes) / context.swap.bandwidth.value);
  };
  costs.load = copied(costs.weights.value);
  costs.load_state = copied(costs.optimizer.value);
  costs.evict = costs.load + costs.load_state;
  std::int64_t stashed = traffic.in[at(stage)], forward = 0, backward = 0;
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
  if (again) costs.recompute += copied(traffic.in[at(stage)]);
}

/// What a replica waits for pushes and fetches, per update.
Seconds server_wait(const PricingContext& context, const Assignment& assignment, const StageCosts& costs,
                    std::span<const int> devices, std::int64_t bytes) {
  const ServerWays ways = server_ways(context.cluster, devices);
  const auto weights = static_cast<double>(bytes);
  if (assignment.synchronous) return Seconds(ways.together(weights));
  return Seconds(ways.in_turns(weights, (costs.forward + costs.backward + costs.update).count()));
}

StageCosts price_stage(const PricingContext& context, const Assignment& assignment,
                       const std::vector<int>& stage_of, const Traffic& traffic, int stage, Crowding share) {
  const bool reruns_layers = !assignment.recompute.empty() && !assignment.recompute[at(stage)].empty();
  const StageContents contents = contents_of(context, assignment, stage_of, traffic, stage);
  StageCosts costs = layer_costs(context, assignment, stage, share);
  costs.versions = versions_kept(assignment.policy, window_of(assignment, stage), assignment.stages(),
                                 assignment.micro_batches);
  set_bytes(costs, stage_bytes(contents, {.versions = costs.versions,
                                          .state_ratio = context.optimizer.state_ratio,
                                          .runs_again = reruns_layers || has_recompute(assignment, stage)}));
  if (reruns_layers) {
    const std::vector<RecomputeUnit> units = recompute_units(
        context.graph, context.model.layers, assignment.stage_layers[at(stage)], traffic.in[at(stage)]);
    add_recompute(costs, units, assignment.recompute[at(stage)]);
  }
  costs.frozen = Bytes(contents.frozen);
  const std::int64_t trained = contents.parameters - contents.frozen;
  const std::vector<int> devices = devices_of(assignment, {stage});
  const double speed = slowest_speed(context.cluster, devices);
  costs.update = Seconds(context.optimizer.update_fixed +
                         static_cast<double>(trained) * context.optimizer.update_per_byte);
  const bool new_version = holds_versions(assignment.policy) && costs.versions > 1;
  costs.update *=
      new_version ? context.optimizer.new_version : 1 + share.beside * (context.optimizer.beside - 1);
  for (Seconds* time : {&costs.forward, &costs.backward, &costs.input_gradient, &costs.weight_gradient,
                        &costs.recompute, &costs.update}) {
    *time /= speed;
  }
  if (assignment.rules == RuleSet::swapped) add_swaps(context, assignment, traffic, stage, costs);
  costs.first = first_times(context, assignment, stage, costs, speed);
  if (assignment.rules == RuleSet::served) {
    if (has_server(assignment.policy))
      costs.update += server_wait(context, assignment, costs, devices, trained);
    return costs;
  }
  costs.all_reduce = all_reduce_time(context.cluster, devices, Bytes(contents.gradients));
  if (costs.all_reduce > Seconds(0) && context.all_reduce_overlap > 0)
    costs.hideable = hideable_of(context, assignment, stage, costs.all_reduce, speed);
  return costs;
}

}  // namespace

int window_of(const Assignment& assignment, int stage) {
  int window = 0;
  for (const int worker : assignment.stage_workers[at(stage)])
    window = std::max(window, window_of(assignment.programs[at(worker)], StageId{stage}));
  return window;
}

std::vector<RecomputeUnit> stage_units(const PricingContext& context, const Assignment& assignment, int stage) {
  const std::vector<int> stage_of = stages_of_layers(context.graph, assignment);
  const Traffic traffic = traffic_of(context.graph, context.model, stage_of, assignment.stages());
  return recompute_units(context.graph, context.model.layers, assignment.stage_layers[at(stage)],
                         traffic.in[at(stage)]);
}

PricedStages price_stages(const PricingContext& context, const Assignment& assignment) {
  const std::vector<int> stage_of = stages_of_layers(context.graph, assignment);
  const Traffic traffic = traffic_of(context.graph, context.model, stage_of, assignment.stages());
  const std::vector<Crowding> crowding = crowding_of_stages(context, assignment);
  PricedStages priced;
  priced.swap = context.swap;
  for (int s = 0; s < assignment.stages(); ++s) {
    priced.stages.push_back(price_stage(context, assignment, stage_of, traffic, s, crowding[at(s)]));
  }
  for (const auto& [ends, edge] : traffic.edges) priced.edges.push_back(edge);
  for (const TiedCopies& copies : tied_copies(context.graph, stage_of)) {
    auto& stages = priced.tied.emplace_back();
    for (const int stage : copies.stages) stages.push_back(StageId{stage});
    priced.tied_all_reduce.push_back(
        all_reduce_time(context.cluster, devices_of(assignment, copies.stages),
                        Bytes(context.graph.layers[at(copies.owner)].trained_bytes())));
  }
  return priced;
}

}  // namespace pp::plan
