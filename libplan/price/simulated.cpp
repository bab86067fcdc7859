#include "libplan/price/simulated.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "libplan/cost/links.h"
#include "libplan/cost/stage_bytes.h"
#include "libplan/price/lanes.h"
#include "libplan/schedule/stream_length.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/index.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan {
namespace {

/// What the simulator should be given.
constexpr int kMostSimulated = 200'000;

/// Micro-batches that many operations have, in each third of a stream.
int affordable_third(const Assignment& assignment) { return kMostSimulated / (3 * 2 * assignment.stages()); }

/// Of every replica of every stage, in whole updates.
int turns_of(const Assignment& assignment, int per_update) {
  std::vector<int> replicas;
  for (const auto& workers : assignment.stage_workers) replicas.push_back(static_cast<int>(workers.size()));
  return stream_round(replicas, per_update, affordable_third(assignment));
}

/// Micro-batches in flight between the first forward and the last backward of a stage.
int most_in_flight(const Assignment& assignment) {
  int most = 1;
  for (int s = 0; s < assignment.stages(); ++s)
    most = std::max(most, window_of(assignment, s) * static_cast<int>(assignment.stage_workers[at(s)].size()));
  return most;
}

/// Of as many micro-batches as a stream runs: those of an update, over and over.
std::vector<double> repeated(const std::vector<double>& scale, int micro_batches) {
  std::vector<double> result;
  while (!scale.empty() && std::ssize(result) < micro_batches)
    result.insert(result.end(), scale.begin(), scale.end());
  return result;
}

/// Free between workers on one device, else the innermost level that holds both.
void set_links(SimulationInput& input, const std::vector<int>& devices, const Cluster& cluster) {
  if (cluster.levels.empty()) return;
  const auto add = [&](const Link& link, int size) {
    LinkLevel& level = input.links.emplace_back(LinkLevel{link});
    for (const int device : devices) level.groups.push_back(device / size);
  };
  if (std::set(devices.begin(), devices.end()).size() < devices.size()) add({}, 1);
  for (const Level& level : cluster.levels) add(link_of(level), level.devices);
}

/// Numbers for the hardware behind workers, where some share it.
void set_hardware(SimulationInput& input, const std::vector<int>& devices, const Cluster& cluster) {
  std::map<Hardware, int> numbers;
  for (const int device : devices) {
    const Hardware hardware = hardware_of(cluster.devices[at(device)]);
    input.hardware.push_back(numbers.try_emplace(hardware, static_cast<int>(numbers.size())).first->second);
  }
  if (numbers.size() == devices.size()) input.hardware.clear();
}

using SimulatedTraffic = std::map<std::pair<WorkerId, WorkerId>, Bytes>;  ///< between workers

/// Of all workers: messages stay in their lane.
SimulatedTraffic of_all_lanes(const SimulatedTraffic& few, const Lanes& lanes, int stages) {
  const int replicas = static_cast<int>(lanes.stands_for.size()) / stages;
  const int kept = static_cast<int>(lanes.few.programs.size()) / stages;
  std::map<int, std::vector<std::pair<int, Bytes>>> sent;  // by worker: to which stage
  for (const auto& [ends, bytes] : few)
    sent[number(ends.first)].emplace_back(number(ends.second) / kept, bytes);
  SimulatedTraffic all;
  for (int worker = 0; worker < std::ssize(lanes.stands_for); ++worker) {
    for (const auto& [stage, bytes] : sent[lanes.stands_for[at(worker)]])
      all[{WorkerId{worker}, WorkerId{stage * replicas + worker % replicas}}] = bytes;
  }
  return all;
}

void add_traffic(Prediction& prediction, const SimulatedTraffic& traffic, int updates) {
  for (const auto& [ends, bytes] : traffic) {
    prediction.links.push_back({ends.first, ends.second, Bytes(bytes.value / updates)});
  }
}

/// Where all micro-batches are equal.
std::optional<Lanes> lanes_of(const Assignment& assignment, const PricingContext& context,
                              const MicroBatchScale& scale) {
  return scale.times.empty() ? few_lanes(assignment, context.cluster) : std::nullopt;
}

}  // namespace

int round_of(const Assignment& assignment) {
  return turns_of(assignment, assignment.synchronous ? 1 : assignment.micro_batches);
}

int steady_length(const Assignment& assignment) {
  const int round = round_of(assignment);
  const int third =
      std::max((20 * assignment.stages() + 2) / 3 * turns_of(assignment, 1), most_in_flight(assignment));
  const int wanted = (third + round - 1) / round;
  const int affordable = std::max(1, affordable_third(assignment) / round);
  return 3 * round * std::min(wanted, affordable);
}

SimulationInput make_input(const PricedStages& priced, const Assignment& assignment, const Cluster& cluster,
                           const MicroBatchScale& scale, double all_reduce_overlap, int micro_batches) {
  SimulationInput input;
  input.programs.micro_batches = micro_batches;
  input.programs.synchronous = assignment.synchronous;
  input.programs.rules = assignment.rules;
  if (!assignment.synchronous) {
    const int replicas = static_cast<int>(assignment.stage_workers.front().size());
    input.programs.backwards_per_update = std::max(1, assignment.micro_batches / replicas);
    input.keeps_versions = holds_versions(assignment.policy);
  }
  const bool clocked = assignment.rules == RuleSet::clocked;
  if (clocked) input.programs.micro_batches = micro_batches = std::max(micro_batches, assignment.stages());
  for (const WorkerProgram& program : assignment.programs) {
    if (!program.stream) {
      input.programs.workers.push_back(program.program);
    } else if (clocked) {
      input.programs.workers.push_back(expand_frames(*program.stream, micro_batches - assignment.stages() + 1));
    } else {
      input.programs.workers.push_back(expand_stretch(*program.stream, micro_batches));
    }
  }
  for (const auto& workers : assignment.stage_workers) {
    auto& ids = input.programs.stage_workers.emplace_back();
    for (const int worker : workers) ids.push_back(WorkerId{worker});
  }
  for (const StageEdge& edge : priced.edges) {
    if (number(edge.to) != number(edge.from) + 1) input.programs.skips.emplace_back(edge.from, edge.to);
  }
  input.programs.tied = priced.tied;
  input.tied_all_reduce = priced.tied_all_reduce;
  input.stages = priced.stages;
  input.edges = priced.edges;
  set_links(input, assignment.worker_devices, cluster);
  set_hardware(input, assignment.worker_devices, cluster);
  if (const NetworkCards cards = network_cards(cluster); !cards.of.empty()) {
    for (const int device : assignment.worker_devices) input.cards.push_back(cards.of[at(device)]);
    input.cards_per_node = cards.per_group;
  }
  input.micro_batch_scale = repeated(scale.times, micro_batches);
  input.micro_batch_bytes = repeated(scale.bytes, micro_batches);
  input.all_reduce_overlap = all_reduce_overlap;
  input.swap_overlap = priced.swap.overlap;
  return input;
}

Seconds simulated_step(const PricedStages& priced, const Assignment& assignment, const PricingContext& context,
                       const MicroBatchScale& scale) {
  const std::optional<Lanes> lanes = lanes_of(assignment, context, scale);
  const Assignment& simulated = lanes ? lanes->few : assignment;
  return chained_period(make_input(priced, simulated, context.cluster, scale, context.all_reduce_overlap,
                                   simulated.micro_batches));
}

Prediction simulate_prediction(const PricedStages& priced, const Assignment& assignment,
                               const PricingContext& context, const MicroBatchScale& scale) {
  const std::optional<Lanes> lanes = lanes_of(assignment, context, scale);
  const Assignment& simulated = lanes ? lanes->few : assignment;
  const auto input = [&](int micro_batches) {
    return make_input(priced, simulated, context.cluster, scale, context.all_reduce_overlap, micro_batches);
  };
  Prediction prediction;
  prediction.stages = priced.stages;
  prediction.edges = priced.edges;
  prediction.tied_all_reduce = priced.tied_all_reduce;
  prediction.micro_batch_scale = scale.times;
  prediction.micro_batch_bytes = scale.bytes;
  prediction.all_reduce_overlap = context.all_reduce_overlap;
  prediction.swap = priced.swap;

  const int length = simulated.synchronous ? simulated.micro_batches : steady_length(simulated);
  const int updates = length / simulated.micro_batches;
  const SimulationInput whole = input(length);
  const auto workers = static_cast<double>(assignment.programs.size());
  SimulationResult result;
  if (assignment.synchronous) {
    ChainedSimulation simulation = simulate_chained(whole);
    result = std::move(simulation.first);
    prediction.makespan = result.makespan;
    prediction.step = simulation.period;
  } else {
    result = simulate(whole, Events::unsorted);
    prediction.makespan = simulate(input(round_of(assignment))).makespan;
    prediction.step = steady_period(whole) * assignment.micro_batches;
  }
  Seconds busy{};
  for (std::size_t w = 0; w < assignment.programs.size(); ++w) {
    const std::size_t like = lanes ? at(lanes->stands_for[w]) : w;
    busy += result.busy[like];
    prediction.workers.push_back({result.busy[like] / updates, result.memory[like]});
  }
  const Seconds length_of_all = assignment.synchronous ? prediction.makespan : updates * prediction.step;
  if (length_of_all > Seconds(0))
    prediction.bubble_fraction = std::max(0.0, 1 - busy / (workers * length_of_all));
  const int samples = std::accumulate(context.model.sizes.begin(), context.model.sizes.end(), 0);
  if (prediction.step > Seconds(0))
    prediction.samples_per_s = std::min(kMostNumber, samples / prediction.step.count());
  SimulatedTraffic traffic;
  for (const MessageEvent& message : result.messages) traffic[{message.from, message.to}] += message.bytes;
  if (lanes) traffic = of_all_lanes(traffic, *lanes, assignment.stages());
  add_traffic(prediction, traffic, updates);
  return prediction;
}

}  // namespace pp::plan
