#include "libplan/answer/explain_infeasible.h"

#include <algorithm>
#include <utility>

#include "libplan/answer/remedies.h"
#include "libplan/cost/priced_model.h"
#include "libplan/cost/stage_memory.h"
#include "libplan/request/plan_request.h"
#include "libplan/search/candidates/placed.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// A search simulates dozens of steps: up to this length it takes about a second.
constexpr std::int64_t kShortStep = 50'000;

/// The attempt that needs the least memory, and of its stages the one whose device falls short by most.
struct BestAttempt {
  std::int64_t limit = kNoBytes;  ///< bytes per device with which it fits; kNoBytes: no attempt at all
  std::vector<std::string> layers;
  int stage = 0;
  int stages = 0;
  DeviceId device{};
  std::string name;         ///< of that device
  std::int64_t needed = 0;  ///< bytes of the stage on its device
  std::int64_t usable = 0;  ///< bytes of the device
  int sharers = 1;          ///< workers on that device, whose bytes these are
  bool stopped = false;     ///< by the observer; others may need less
};

/// What one worker has on its device.
struct WorkerBytes {
  int stage = 0;
  const Device* device = nullptr;
  std::int64_t own = 0;     ///< without context
  std::int64_t needed = 0;  ///< on its device: with context, and with the workers of the same hardware
  int sharers = 1;
};

/// Of all workers, on the devices that the partition gets.
std::vector<WorkerBytes> worker_bytes(const PlanCase& one, const Problem& problem, const Partition& partition) {
  const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
  std::vector<WorkerBytes> workers;
  auto position = one.devices.positions.begin();
  int stage = 0;
  for (const StageBytes& part : memory.stages(partition)) {
    for (int q = 0; q < partition[at(stage)].replicas; ++q) {
      const Device& device = problem.cluster.devices[at(*position++)];
      workers.push_back({.stage = stage, .device = &device, .own = part.total()});
    }
    ++stage;
  }
  for (WorkerBytes& worker : workers) {
    worker.sharers = 0;
    worker.needed = one.devices.limit.context;
    for (const WorkerBytes& other : workers) {
      if (!share_memory(*worker.device, *other.device)) continue;
      worker.needed += other.own;
      ++worker.sharers;
    }
  }
  return workers;
}

std::int64_t largest(const PlanCase& one, const Problem& problem, const Partition& partition) {
  return std::ranges::max(worker_bytes(one, problem, partition), {}, &WorkerBytes::needed).needed;
}

void describe(BestAttempt& attempt, const PlanCase& one, const Problem& problem, const Partition& partition) {
  attempt = {.limit = largest(one, problem, partition),
             .layers = {},
             .stages = static_cast<int>(partition.size()),
             .name = {}};
  bool first = true;
  for (const WorkerBytes& worker : worker_bytes(one, problem, partition)) {
    const std::int64_t usable = usable_bytes(*worker.device, problem.request);
    if (!std::exchange(first, false) && worker.needed - usable <= attempt.needed - attempt.usable) continue;
    attempt.stage = worker.stage;
    attempt.device = worker.device->id;
    attempt.name = device_name(problem.cluster.devices, *worker.device);
    attempt.needed = worker.needed;
    attempt.sharers = worker.sharers;
    attempt.usable = usable;
  }
  const StageRange& stage = partition[at(attempt.stage)];
  for (int p = stage.begin; p < stage.end; ++p) {
    const int layer = one.order.layers[at(p)];
    attempt.layers.push_back(problem.graph.layers[at(layer)].name);
  }
}

/// Needs least of all in the case, and less than `below` bytes; empty: there is none. What it has when it is
/// stopped stays in `partition`.
void find_smallest(const PlanCase& one, const Problem& problem, std::int64_t below, Partition& partition) {
  partition = fitting(one, problem, below == kNoBytes ? kNoBytes : below - 1);
  if (partition.empty()) return;
  std::int64_t low = 0;  // does not fit
  std::int64_t high = largest(one, problem, partition);
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    Partition smaller = fitting(one, problem, middle);
    if (smaller.empty()) {
      low = middle;
    } else {
      partition = std::move(smaller);
      high = std::min(middle, largest(one, problem, partition));
    }
  }
}

/// The least bytes per device over all cases, exact. A case that cannot beat the best so far costs one probe.
BestAttempt best_attempt(const Problem& problem) {
  BestAttempt best;
  bool stopped = false;
  problem.each_case([&](const PlanCase& one) {
    if (stopped || places_stages(one.schedule) || one.devices.is_relaxed()) return;
    Partition partition;
    try {
      find_smallest(one, problem, best.limit, partition);
    } catch (const SearchStopped&) {
      stopped = true;
    }
    if (!partition.empty()) describe(best, one, problem, partition);
  });
  best.stopped = stopped;
  return best;
}

std::int64_t largest_limit(const Problem& problem) {
  std::int64_t limit = 0;
  for (const DeviceSet& set : device_sets(problem.cluster, problem.request, kind_rates(problem.profile)))
    limit = std::max(limit, set.limit.bytes);
  return limit;
}

std::int64_t smallest_device(const Cluster& cluster, const PlanRequest& request) {
  std::int64_t limit = kNoBytes;
  for (const Device& device : cluster.devices) limit = std::min(limit, usable_bytes(device, request));
  return limit;
}

/// `9000000 bytes (8.58 MiB)`
std::string bytes_text(std::int64_t bytes) {
  const std::string text = std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  return bytes < 1'000'000 ? text : text + " (" + to_text(Bytes(bytes)) + ")";
}

/// A layer whose parameters alone exceed the limit, whatever replicas share: no partition can help.
std::optional<Infeasible> oversized_layer(const Problem& problem, std::int64_t limit) {
  const PlanRequest& request = problem.request;
  const OptimizerCost optimizer =
      optimizer_cost(problem.profile, request.optimizer, request.optimizer_state_ratio, request.precision);
  const bool shares = request.shard != ShardChoice::none;
  const StageKeeping keeping{.optimizer = optimizer,
                             .sharers = shares ? static_cast<int>(problem.cluster.devices.size()) : 0};
  std::int64_t most = 0;
  const GraphLayer* worst = nullptr;
  for (const GraphLayer& layer : problem.graph.layers) {
    const StageContents contents{.parameters = layer.parameter_bytes,
                                 .buffers = layer.buffer_bytes,
                                 .frozen = layer.frozen_bytes,
                                 .gradients = layer.trained_bytes(),
                                 .experts = layer.expert_bytes};
    const std::int64_t needed = stage_bytes(contents, keeping).total() + request.context_bytes.value;
    if (needed > most) most = needed, worst = &layer;
  }
  if (worst == nullptr || most <= limit) return std::nullopt;
  Infeasible none;
  none.layers = {worst->name};
  none.short_by = Bytes(most - limit);
  none.reason =
      "does not fit: layer " + worst->name + " alone needs " + bytes_text(most) +
      " for its weights, gradients and optimizer state" +
      (request.context_bytes > Bytes(0) ? " and what the process takes (" + to_text(request.context_bytes) + ")"
                                        : "") +
      ", " + std::to_string(most - limit) + " more than the limit of " + bytes_text(limit);
  return none;
}

/// Lowers `bytes` to the least limit, under which there is a plan, that planning again can reach: a schedule
/// that follows the costs needs less when there is less. False: there was no time to see that nothing does.
bool tighten(const Problem& problem, std::int64_t& bytes) {
  PlanRequest request = problem.request;
  while (goes_on(request, problem.progress())) {
    request.memory_limit = Bytes(bytes - 1);
    const SearchOutcome smaller = problem.with(request).search();
    if (smaller.ranked.empty()) return !smaller.cut_short;
    const std::int64_t peak = std::ranges::min(smaller.ranked, {}, &Finalist::peak).peak();
    request.memory_limit = Bytes(peak) + request.context_bytes;
    const SearchOutcome same = problem.with(request).search();
    if (same.ranked.empty()) return !same.cut_short;
    bytes = request.memory_limit->value;
  }
  return false;
}

/// Forwards and both halves of the backwards of the longest step that a placed schedule simulates.
std::int64_t longest_step(const Problem& problem) {
  std::int64_t micro_batches = 0;
  problem.each_case([&](const PlanCase& one) {
    if (places_stages(one.schedule))
      micro_batches = std::max<std::int64_t>(micro_batches, one.batch.micro_batches);
  });
  return 3 * micro_batches * std::ssize(problem.cluster.devices);
}

bool has_placed(const PlanRequest& request) {
  return std::ranges::any_of(requested_schedules(request),
                             [](const ScheduleRow* row) { return places_stages(*row); });
}

std::string excess_text(std::int64_t needed, std::int64_t limit) {
  return std::to_string(needed - limit) + " more than the limit of " + bytes_text(limit);
}

/// The stage that falls short in the best attempt of the schedules whose stages the planner places.
Infeasible short_stage(const BestAttempt& best) {
  Infeasible none;
  none.layers = best.layers;
  none.short_by = Bytes(best.needed - best.usable);
  none.stage = best.stage;
  none.device = best.device;
  const std::string sharing =
      best.sharers == 1 ? "" : "with the " + std::to_string(best.sharers - 1) + " other on the same hardware ";
  none.reason = "does not fit: stage " + std::to_string(best.stage) + " of " + std::to_string(best.stages) +
                " (" + best.layers.front() + (best.layers.size() > 1 ? ".." + best.layers.back() : "") +
                ") needs " + sharing + bytes_text(best.needed) + " on " + best.name + " in the best attempt, " +
                excess_text(best.needed, best.usable);
  return none;
}

/// What one device lacks in the best attempt of a schedule that places its stages itself.
Infeasible short_worker(std::string_view schedule, std::int64_t needed, std::int64_t limit) {
  Infeasible none;
  none.short_by = Bytes(needed - limit);
  none.reason = "does not fit: schedule " + std::string(schedule) + " needs " + bytes_text(needed) +
                " on one device in the best attempt, " + excess_text(needed, limit);
  return none;
}

}  // namespace

Infeasible explain_infeasible(const Profile& profile, const Cluster& cluster, const PlanRequest& request,
                              const NoPlan& attempt) {
  const PlanGraph graph = planned_graph(profile, request);
  const Problem problem{profile, cluster, graph, request};
  const std::int64_t limit = largest_limit(problem);
  const BestAttempt best = best_attempt(problem);
  if (best.stopped && best.limit == kNoBytes) refuse_unfinished();
  std::int64_t placed = attempt.short_by ? limit + attempt.short_by->value : kNoBytes;
  // Planning again for a limit below that of the other schedules is left to requests where it is short.
  const bool small = graph.size() * static_cast<int>(cluster.devices.size()) <= kLimitedWork;
  bool tight = (best.limit == kNoBytes || (small && !best.stopped)) && longest_step(problem) <= kShortStep;
  bool stopped = best.stopped;
  if (tight && has_placed(request) && std::min(best.limit, placed) != kNoBytes) {
    placed = std::min(best.limit, placed);
    tight = tighten(problem, placed);
    stopped |= !tight;
  }
  const std::int64_t least = std::min(best.limit, placed);
  Infeasible none;
  if (least == kNoBytes) {
    none.reason =
        "no partition has the stages and replicas asked for with these micro-batches; leave one of the "
        "constraints out";
    return none;
  }
  if (std::optional<Infeasible> oversized = oversized_layer(problem, limit)) {
    none = std::move(*oversized);
  } else if (least <= smallest_device(cluster, request)) {
    none.reason = "no plan that was simulated keeps to the limit of " + bytes_text(limit) +
                  ", though by a count of its bytes one needs " + bytes_text(least);
    none.cut_short = stopped;
    add_remedy(problem, none);
    return none;
  } else {
    none = placed < best.limit ? short_worker(attempt.short_schedule, placed, smallest_device(cluster, request))
                               : short_stage(best);
  }
  none.smallest_limit = Bytes(least);
  none.reason += (tight && best.sharers == 1 ? "; smallest feasible limit " : "; fits with a limit of ") +
                 bytes_text(least);
  none.cut_short = stopped;
  add_remedy(problem, none);
  return none;
}

}  // namespace pp::plan
