#include "libplan/search/infeasible.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "libplan/cost/priced_model.h"
#include "libplan/search/cases.h"
#include "libplan/search/joint.h"
#include "libplan/search/machine.h"
#include "libplan/search/placed.h"

namespace pp::plan {
namespace {

constexpr std::int64_t kNoBytes = std::numeric_limits<std::int64_t>::max();

/// What is planned, or a change of it. All must outlive it.
struct Problem {
  const Profile& profile;
  const Cluster& cluster;
  const PlanGraph& graph;
  const PlanRequest& request;

  Problem with(const PlanRequest& changed) const { return {profile, cluster, graph, changed}; }
  Problem on(const Cluster& other) const { return {profile, other, graph, request}; }
  std::vector<Finalist> search() const { return search_jointly(profile, cluster, graph, request).ranked; }
  void each_case(const std::function<void(const PlanCase&)>& visit) const {
    for_each_case(profile, cluster, graph, request, visit);
  }
};

/// The attempt that needs the least memory, and of its stages the one whose device falls short by most.
struct BestAttempt {
  std::int64_t limit = kNoBytes;  ///< bytes per device with which it fits; kNoBytes: no attempt at all
  std::vector<std::string> layers;
  int stage = 0;
  int stages = 0;
  DeviceId device{};
  std::int64_t needed = 0;  ///< bytes of the stage
  std::int64_t usable = 0;  ///< bytes of the device
};

/// A partition of this case that keeps to `bytes` per device; empty: none.
Partition fitting(const PlanCase& one, const Problem& problem, std::int64_t bytes) {
  MemoryLimit limit = one.devices.limit;
  limit.bytes = bytes;
  const StageMemory memory(one.chain, one.in_flight, limit);
  SearchCase what = search_case(one, memory, problem.cluster, problem.request);
  what.limited = true;
  return find_fitting(what, one.space);
}

/// Bytes of each stage on a device of its own, context included.
std::vector<std::int64_t> needed(const PlanCase& one, const Partition& partition) {
  const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
  std::vector<std::int64_t> bytes;
  for (const StageBytes& part : memory.stages(partition))
    bytes.push_back(part.total() + one.devices.limit.context);
  return bytes;
}

std::int64_t largest(const PlanCase& one, const Partition& partition) {
  return std::ranges::max(needed(one, partition));
}

void describe(BestAttempt& attempt, const PlanCase& one, const Problem& problem, const Partition& partition) {
  const std::vector<std::int64_t> bytes = needed(one, partition);
  attempt = {.limit = std::ranges::max(bytes), .layers = {}, .stages = static_cast<int>(partition.size())};
  auto position = one.devices.positions.begin();
  for (std::size_t s = 0; s < partition.size(); ++s) {
    for (int replica = 0; replica < partition[s].replicas; ++replica) {
      const Device& device = problem.cluster.devices[static_cast<std::size_t>(*position++)];
      const std::int64_t usable = usable_bytes(device, problem.request);
      const bool first = s == 0 && replica == 0;
      if (!first && bytes[s] - usable <= attempt.needed - attempt.usable) continue;
      attempt.stage = static_cast<int>(s);
      attempt.device = device.id;
      attempt.needed = bytes[s];
      attempt.usable = usable;
    }
  }
  const StageRange& stage = partition[static_cast<std::size_t>(attempt.stage)];
  for (int p = stage.begin; p < stage.end; ++p) {
    const int layer = one.order.layers[static_cast<std::size_t>(p)];
    attempt.layers.push_back(problem.graph.layers[static_cast<std::size_t>(layer)].name);
  }
}

/// The least bytes per device over all cases, exact. A case that cannot beat the best so far costs one probe.
BestAttempt best_attempt(const Problem& problem) {
  BestAttempt best;
  problem.each_case([&](const PlanCase& one) {
    if (is_placed(one.schedule)) return;
    Partition partition = fitting(one, problem, best.limit == kNoBytes ? kNoBytes : best.limit - 1);
    if (partition.empty()) return;
    std::int64_t low = 0;  // does not fit
    std::int64_t high = largest(one, partition);
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      Partition smaller = fitting(one, problem, middle);
      if (smaller.empty()) {
        low = middle;
      } else {
        partition = std::move(smaller);
        high = std::min(middle, largest(one, partition));
      }
    }
    describe(best, one, problem, partition);
  });
  return best;
}

/// Whether the search finds a plan: any partition that fits. Where only schedules compete that place their
/// stages, these are simulated.
bool feasible(const Problem& problem) {
  bool found = false;
  bool only_placed = true;
  try {
    check_request(problem.profile, problem.cluster, problem.graph, problem.request);
    problem.each_case([&](const PlanCase& one) {
      if (is_placed(one.schedule)) return;
      only_placed = false;
      if (!found) found = !fitting(one, problem, one.devices.limit.bytes).empty();
    });
    return found || (only_placed && !problem.search().empty());
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;  // the changed request is not possible at all
  }
}

/// The fewest devices like the last one with which there is a plan, up to about twice as many; 0: none. What
/// fits on some devices fits with more.
std::size_t enough_devices(const Problem& problem) {
  std::size_t too_few = problem.cluster.devices.size();
  std::size_t enough = std::min<std::size_t>(2 * too_few + 8, problem.graph.layers.size());
  const auto fits = [&](std::size_t devices) {
    Cluster larger = problem.cluster;
    while (larger.devices.size() < devices) larger = with_one_more_device(std::move(larger));
    return feasible(problem.on(larger));
  };
  if (requested_stages(problem.request) != 0 || enough <= too_few || !fits(enough)) return 0;
  while (enough - too_few > 1) {
    const std::size_t middle = too_few + (enough - too_few) / 2;
    (fits(middle) ? enough : too_few) = middle;
  }
  return enough;
}

/// `limit` bytes per device: an option where the devices have them, else other devices.
std::string more_memory(const Problem& problem, std::int64_t limit) {
  const bool there = std::ranges::all_of(problem.cluster.devices, [&](const Device& device) {
    return device.memory.value == 0 || device.memory.value >= limit;
  });
  if (there) return "--memory-limit " + std::to_string(limit);
  const double usable = problem.request.memory_limit ? 1 : 1 - problem.request.reserve;
  const auto bytes = static_cast<std::int64_t>(std::ceil(static_cast<double>(limit) / usable));
  return "devices with " + std::to_string(bytes) + " bytes of memory each";
}

/// The first change that helps, in the order: micro-batches, schedule, recompute, devices, memory.
std::string find_remedy(const Problem& problem, const std::optional<Bytes>& smallest_limit) {
  const PlanRequest& request = problem.request;
  if (request.micro_batches || request.micro_batch_size) {
    for (const std::int64_t size : problem.profile.micro_batch_sizes) {
      PlanRequest changed = request;
      changed.micro_batches.reset();
      changed.micro_batch_size = static_cast<int>(size);
      if (request.mini_batch % size == 0 && feasible(problem.with(changed))) {
        return "--micro-batch-size " + std::to_string(size);
      }
    }
  }
  if (!chooses_schedule(request) && require_schedule(request.schedule).synchronous) {
    for (const ScheduleRow& row : schedule_table()) {
      PlanRequest changed = request;
      changed.schedule = row.name;
      if (row.candidate && row.synchronous && feasible(problem.with(changed)))
        return "--schedule " + changed.schedule;
    }
  }
  if (request.recompute != RecomputeMode::automatic && !request.programs) {
    PlanRequest changed = request;
    changed.recompute = RecomputeMode::automatic;
    if (feasible(problem.with(changed))) return "--recompute auto";
  }
  if (const std::size_t devices = enough_devices(problem)) return std::to_string(devices) + " devices";
  return smallest_limit ? more_memory(problem, smallest_limit->value) : std::string();
}

std::int64_t largest_limit(const Cluster& cluster, const PlanRequest& request) {
  std::int64_t limit = 0;
  for (const DeviceSet& set : device_sets(cluster, request)) limit = std::max(limit, set.limit.bytes);
  return limit;
}

std::int64_t smallest_device(const Cluster& cluster, const PlanRequest& request) {
  std::int64_t limit = kNoBytes;
  for (const Device& device : cluster.devices) limit = std::min(limit, usable_bytes(device, request));
  return limit;
}

std::string bytes_text(std::int64_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

/// A layer whose parameters alone exceed the limit: no partition can help.
std::optional<Infeasible> oversized_layer(const Problem& problem, std::int64_t limit) {
  const PlanRequest& request = problem.request;
  const OptimizerCost optimizer =
      optimizer_cost(problem.profile, request.optimizer, request.optimizer_state_ratio);
  std::int64_t most = 0;
  const GraphLayer* worst = nullptr;
  for (const GraphLayer& layer : problem.graph.layers) {
    const auto state = std::ceil(optimizer.state_ratio * static_cast<double>(layer.parameter_bytes));
    const std::int64_t needed = 2 * layer.parameter_bytes + static_cast<std::int64_t>(state) +
                                layer.buffer_bytes + request.context_bytes.value;
    if (needed > most) most = needed, worst = &layer;
  }
  if (worst == nullptr || most <= limit) return std::nullopt;
  Infeasible none;
  none.layers = {worst->name};
  none.short_by = Bytes(most - limit);
  none.reason = "does not fit: layer " + worst->name + " alone needs " + bytes_text(most) +
                " for its weights, gradients and optimizer state, " + std::to_string(most - limit) +
                " more than the limit of " + bytes_text(limit);
  return none;
}

/// The least limit at or below `bytes`, under which there is a plan, that planning again can reach: a schedule
/// that follows the costs needs less when there is less.
std::int64_t tightened(const Problem& problem, std::int64_t bytes) {
  PlanRequest request = problem.request;
  while (true) {
    request.memory_limit = Bytes(bytes - 1);
    const std::vector<Finalist> smaller = problem.with(request).search();
    if (smaller.empty()) return bytes;
    const std::int64_t peak = std::ranges::min(smaller, {}, &Finalist::peak).peak();
    request.memory_limit = Bytes(peak) + request.context_bytes;
    if (problem.with(request).search().empty()) return bytes;
    bytes = request.memory_limit->value;
  }
}

bool has_placed(const PlanRequest& request) {
  return std::ranges::any_of(requested_schedules(request),
                             [](const ScheduleRow* row) { return is_placed(*row); });
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
  none.reason = "does not fit: stage " + std::to_string(best.stage) + " of " + std::to_string(best.stages) +
                " (" + best.layers.front() + (best.layers.size() > 1 ? ".." + best.layers.back() : "") +
                ") needs " + bytes_text(best.needed) + " on device " + std::to_string(number(best.device)) +
                " in the best attempt, " + excess_text(best.needed, best.usable);
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

Infeasible explain_infeasible(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                              const PlanRequest& request, const SearchOutcome& outcome) {
  const std::int64_t limit = largest_limit(cluster, request);
  const Problem problem{profile, cluster, graph, request};
  const BestAttempt best = best_attempt(problem);
  std::int64_t placed = outcome.short_by ? limit + outcome.short_by->value : kNoBytes;
  // Planning again for a limit below that of the other schedules is left to models where it is short.
  const bool tight =
      best.limit == kNoBytes || graph.size() * static_cast<int>(cluster.devices.size()) <= kLimitedWork;
  if (tight && has_placed(request) && std::min(best.limit, placed) != kNoBytes)
    placed = tightened(problem, std::min(best.limit, placed));
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
  } else {
    none = placed < best.limit ? short_worker(outcome.short_schedule, placed, smallest_device(cluster, request))
                               : short_stage(best);
  }
  none.smallest_limit = Bytes(least);
  none.reason += (tight ? "; smallest feasible limit " : "; fits with a limit of ") + bytes_text(least);
  none.remedy = find_remedy(problem, none.smallest_limit);
  return none;
}

}  // namespace pp::plan
