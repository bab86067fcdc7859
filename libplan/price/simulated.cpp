#include "libplan/price/simulated.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "libplan/cost/links.h"
#include "libplan/cost/stage_memory.h"
#include "libplan/schedule/queues.h"
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
    for (const int device : devices) level.groups.push_back(slot_of(cluster, device) / size);
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

/// Devices whose messages meet on network cards.
int whole_node(const Cluster& cluster) {
  return cluster.levels.size() < 2 ? 1 : cluster.levels.front().devices;
}

/// By how many of the node's replicas have a micro-batch more.
int class_of(int node, int size, int extra) { return std::clamp(extra - node * size, 0, size); }

/// The first replica of the first node that is like the replica's own, and its place there.
int twin_of(int replica, int size, int extra) {
  int node = replica / size;
  while (node > 0 && class_of(node - 1, size, extra) == class_of(node, size, extra)) --node;
  return node * size + replica % size;
}

/// Whether every stage has its replicas in turn on devices of whole nodes, no two of one piece of hardware.
bool is_in_lanes(const Assignment& whole, const Cluster& cluster, int replicas) {
  const int size = whole_node(cluster);
  std::set<Hardware> hardware;
  for (const int device : whole.worker_devices) hardware.insert(hardware_of(cluster.devices[at(device)]));
  if (hardware.size() < whole.worker_devices.size()) return false;
  for (int s = 0; s < whole.stages(); ++s) {
    const std::vector<int>& workers = whole.stage_workers[at(s)];
    if (std::ssize(workers) != replicas) return false;
    for (int r = 0; r < replicas; ++r) {
      if (workers[at(r)] != s * replicas + r || whole.programs[at(workers[at(r)])].stream) return false;
      const int device = whole.worker_devices[at(workers[at(r)])];
      if (device % size != r % size ||
          device / size != whole.worker_devices[at(workers[at(r - r % size)])] / size)
        return false;
    }
  }
  return true;
}

/// Whether both run the same, the one `ahead` micro-batches behind the other.
bool runs_ahead(const Program& program, const Program& twin, int ahead) {
  return std::ranges::equal(program, twin, [&](Op op, const Op& other) {
    if (has_micro_batch(op.kind)) op.micro_batch -= ahead;
    return op == other;
  });
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

std::vector<int> kept_lanes(int replicas, int micro_batches, const Cluster& cluster) {
  const int size = whole_node(cluster), extra = micro_batches % replicas;
  std::vector<int> kept;
  int last = -1, run = 0;  // class, and nodes of it
  const bool one_class = extra == 0;
  for (int node = 0; node * size < replicas && replicas % size == 0; ++node) {
    const int here = class_of(node, size, extra);
    run = here == last ? run + 1 : 1;
    last = here;
    for (int place = 0; run <= (one_class ? 2 : 1) && place < size; ++place)
      kept.push_back(node * size + place);
  }
  if (!kept.empty() && std::ssize(kept) < replicas && micro_batches >= replicas) return kept;
  kept.resize(at(replicas));
  std::iota(kept.begin(), kept.end(), 0);
  return kept;
}

std::optional<Lanes> few_lanes(const Assignment& whole, const Cluster& cluster) {
  const int replicas = static_cast<int>(whole.stage_workers.front().size());
  if (!whole.synchronous || whole.rules != RuleSet::standard) return std::nullopt;
  if (cluster.levels.size() > 2 || has_empty_slots(cluster)) return std::nullopt;
  const std::vector<int> kept = kept_lanes(replicas, whole.micro_batches, cluster);
  const int count = static_cast<int>(kept.size());
  if (count == replicas || !is_in_lanes(whole, cluster, replicas)) return std::nullopt;
  const int size = whole_node(cluster), extra = whole.micro_batches % replicas;
  const auto place = [&](int lane) {
    return static_cast<int>(std::ranges::lower_bound(kept, lane) - kept.begin());
  };
  Lanes lanes;
  lanes.few = {.stage_layers = whole.stage_layers,
               .stage_workers = {},
               .worker_devices = {},
               .programs = {},
               .recompute = whole.recompute,
               .micro_batches = 0,
               .synchronous = whole.synchronous,
               .policy = whole.policy,
               .shard = whole.shard,
               .rules = whole.rules};
  for (const int lane : kept)
    lanes.few.micro_batches += whole.micro_batches / replicas + (lane < extra ? 1 : 0);
  for (int s = 0; s < whole.stages(); ++s) {
    for (int r = 0; r < replicas; ++r) {
      const int twin = twin_of(r, size, extra), worker = s * replicas + r;
      const Program& program = whole.programs[at(worker)].program;
      if (!runs_ahead(program, whole.programs[at(s * replicas + twin)].program, r - twin)) return std::nullopt;
      lanes.stands_for.push_back(s * count + place(twin));
    }
    auto& workers = lanes.few.stage_workers.emplace_back();
    for (const int lane : kept) {
      workers.push_back(static_cast<int>(lanes.few.programs.size()));
      lanes.few.worker_devices.push_back(whole.worker_devices[at(s * replicas + lane)]);
      WorkerProgram& worker = lanes.few.programs.emplace_back(whole.programs[at(s * replicas + lane)]);
      for (Op& op : worker.program) {
        if (!has_micro_batch(op.kind)) continue;
        if (op.micro_batch % replicas != lane) return std::nullopt;
        op.micro_batch = op.micro_batch / replicas * count + place(lane);
      }
    }
  }
  return lanes;
}

}  // namespace pp::plan
