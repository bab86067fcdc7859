#include "libplan/search/infeasible.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

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
    for_each_case(profile, cluster, graph, request, [&](PlanCase one) {
      one.space.stop.goes_on = [&] { return goes_on(request, progress()); };
      visit(one);
    });
  }
  SearchProgress progress() const { return {static_cast<int>(cluster.devices.size()), {}}; }
};

/// The attempt that needs the least memory, and of its stages the one whose device falls short by most.
struct BestAttempt {
  std::int64_t limit = kNoBytes;  ///< bytes per device with which it fits; kNoBytes: no attempt at all
  std::vector<std::string> layers;
  int stage = 0;
  int stages = 0;
  DeviceId device{};
  std::int64_t needed = 0;  ///< bytes of the stage on its device
  std::int64_t usable = 0;  ///< bytes of the device
  int sharers = 1;          ///< workers on that device, whose bytes these are
  bool stopped = false;     ///< by the observer; others may need less
};

/// A partition of this case that keeps to `bytes` per device; empty: none.
Partition fitting(const PlanCase& one, const Problem& problem, std::int64_t bytes) {
  MemoryLimit limit = one.devices.limit;
  limit.bytes = bytes == kNoBytes ? kNoBytes : bytes / one.devices.sharers;
  const StageMemory memory(one.chain, one.in_flight, limit);
  SearchCase what = search_case(one, memory, problem.cluster, problem.request);
  what.limited = true;
  return find_fitting(what, one.space);
}

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
    for (int q = 0; q < partition[static_cast<std::size_t>(stage)].replicas; ++q) {
      const Device& device = problem.cluster.devices[static_cast<std::size_t>(*position++)];
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
  attempt = {
      .limit = largest(one, problem, partition), .layers = {}, .stages = static_cast<int>(partition.size())};
  bool first = true;
  for (const WorkerBytes& worker : worker_bytes(one, problem, partition)) {
    const std::int64_t usable = usable_bytes(*worker.device, problem.request);
    if (!std::exchange(first, false) && worker.needed - usable <= attempt.needed - attempt.usable) continue;
    attempt.stage = worker.stage;
    attempt.device = worker.device->id;
    attempt.needed = worker.needed;
    attempt.sharers = worker.sharers;
    attempt.usable = usable;
  }
  const StageRange& stage = partition[static_cast<std::size_t>(attempt.stage)];
  for (int p = stage.begin; p < stage.end; ++p) {
    const int layer = one.order.layers[static_cast<std::size_t>(p)];
    attempt.layers.push_back(problem.graph.layers[static_cast<std::size_t>(layer)].name);
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
    if (stopped || is_placed(one.schedule) || one.devices.is_relaxed()) return;
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

/// Whether the search finds a plan: any partition that fits. Where only schedules compete that place their
/// stages, these are simulated.
bool feasible(const Problem& problem) {
  if (!goes_on(problem.request, problem.progress())) return false;
  bool found = false;
  bool only_placed = true;
  try {
    check_request(problem.profile, problem.cluster, problem.graph, problem.request);
    problem.each_case([&](const PlanCase& one) {
      if (is_placed(one.schedule)) return;
      only_placed = false;
      if (found || one.devices.is_relaxed()) return;
      const std::int64_t limit = one.devices.limit.bytes;
      found = !fitting(one, problem, limit == kNoBytes ? limit : limit * one.devices.sharers).empty();
    });
    return found || (only_placed && !problem.search().empty());
  } catch (const SearchStopped&) {
    return false;
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

/// As people type it and parse_bytes() reads it: `9MB`, `1.5GiB`, below 1 MB the digits alone. Rounded up to
/// two decimals where no unit takes it as it is.
std::string typed_bytes(std::int64_t bytes) {
  constexpr std::int64_t kMega = 1'000'000;
  const auto decimal = [&](std::int64_t unit, const char* name) -> std::string {
    if (bytes < unit || bytes % (unit / 1000) != 0) return {};
    std::string text = std::to_string(bytes / unit);
    std::string rest = std::to_string(1000 + bytes % unit / (unit / 1000)).substr(1);
    while (!rest.empty() && rest.back() == '0') rest.pop_back();
    return text + (rest.empty() ? "" : "." + rest) + name;
  };
  for (const auto& [unit, name] :
       {std::pair{kMega * kMega, "TB"}, std::pair{kMega * 1000, "GB"}, std::pair{kMega, "MB"}}) {
    if (const std::string text = decimal(unit, name); !text.empty()) return text;
  }
  for (const auto& [shift, name] : {std::pair{40, "TiB"}, std::pair{30, "GiB"}, std::pair{20, "MiB"}}) {
    const std::int64_t unit = std::int64_t{1} << shift;
    if (bytes < unit) continue;
    const std::int64_t hundredths = bytes / unit * 100 + (bytes % unit * 100 + unit - 1) / unit;
    std::string text = std::to_string(hundredths / 100);
    if (hundredths % 100 != 0) text += "." + std::to_string(100 + hundredths % 100).substr(1);
    return text + name;
  }
  return std::to_string(bytes);
}

/// `limit` bytes per device: an option where the devices have them, else other devices.
std::string more_memory(const Problem& problem, std::int64_t limit) {
  const bool there = std::ranges::all_of(problem.cluster.devices, [&](const Device& device) {
    return device.memory.value == 0 || device.memory.value >= limit;
  });
  if (there) return "--memory-limit " + typed_bytes(limit);
  const double usable = problem.request.memory_limit ? 1 : 1 - problem.request.reserve;
  const auto bytes = static_cast<std::int64_t>(std::ceil(static_cast<double>(limit) / usable));
  const std::string text = typed_bytes(bytes);
  return "devices with " + text + (std::isdigit(text.back()) != 0 ? " bytes" : "") + " of memory each";
}

/// Sizes below those that the request tries, the largest first: profiled ones where one is given, then halves.
std::vector<int> smaller_sizes(const Problem& problem) {
  const PlanRequest& request = problem.request;
  std::int64_t size = problem.profile.micro_batch_sizes.front();
  for (const std::int64_t other : problem.profile.micro_batch_sizes) size = std::min(size, other);
  std::vector<int> sizes;
  if (request.micro_batches || request.micro_batch_size) {
    const std::int64_t given = request.micro_batch_size.value_or(
        (request.mini_batch + request.micro_batches.value_or(1) - 1) / request.micro_batches.value_or(1));
    for (const std::int64_t other : problem.profile.micro_batch_sizes) {
      if (other < given) sizes.push_back(static_cast<int>(other));
    }
    size = std::min(size, given);
  }
  for (size /= 2; size > 0; size /= 2) sizes.push_back(static_cast<int>(size));
  std::ranges::sort(sizes, std::greater());
  std::erase_if(sizes, [&](int one) { return request.mini_batch % one != 0; });
  return sizes;
}

/// `--micro-batches 16`, or by their size where the request is: the fewest that fit. Sizes below the profiled
/// ones need an option more.
std::string smaller_micro_batches(const Problem& problem) {
  const bool single = problem.profile.micro_batch_sizes.size() == 1;
  const std::int64_t least = std::ranges::min(problem.profile.micro_batch_sizes);
  for (const int size : smaller_sizes(problem)) {
    PlanRequest changed = problem.request;
    std::string option;
    if (problem.request.micro_batches) {
      changed.micro_batches = changed.mini_batch / size;
      option = "--micro-batches " + std::to_string(*changed.micro_batches);
    } else {
      changed.micro_batch_size = size;
      option = "--micro-batch-size " + std::to_string(size);
    }
    if (size < least && !changed.extrapolate && !changed.linear_batch) {
      (single ? changed.linear_batch : changed.extrapolate) = true;
      option += single ? " --linear-batch" : " --extrapolate";
    }
    if (feasible(problem.with(changed))) return option;
  }
  return {};
}

std::string other_schedule(const Problem& problem) {
  const PlanRequest& request = problem.request;
  if (chooses_schedule(request) || !require_schedule(request.schedule).synchronous) return {};
  for (const ScheduleRow& row : schedule_table()) {
    PlanRequest changed = request;
    changed.schedule = row.name;
    if (row.candidate && row.synchronous && feasible(problem.with(changed)))
      return "--schedule " + changed.schedule;
  }
  return {};
}

std::string recomputing(const Problem& problem) {
  PlanRequest changed = problem.request;
  if (changed.recompute == RecomputeMode::automatic || changed.programs) return {};
  changed.recompute = RecomputeMode::automatic;
  return feasible(problem.with(changed)) ? "--recompute auto" : "";
}

/// Every kind of change that helps by itself: micro-batches, schedule, recompute; else devices, or memory.
std::string find_remedy(const Problem& problem, const std::optional<Bytes>& smallest_limit) {
  std::string text;
  for (const std::string& option :
       {smaller_micro_batches(problem), other_schedule(problem), recomputing(problem)}) {
    if (!option.empty()) text.append(text.empty() ? "" : ", or ").append(option);
  }
  if (!text.empty()) return text;
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

/// `9000000 bytes (8.58 MiB)`
std::string bytes_text(std::int64_t bytes) {
  const std::string text = std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  return bytes < 1'000'000 ? text : text + " (" + to_text(Bytes(bytes)) + ")";
}

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
  const std::string sharing =
      best.sharers == 1 ? "" : "with the " + std::to_string(best.sharers - 1) + " other on the same hardware ";
  none.reason = "does not fit: stage " + std::to_string(best.stage) + " of " + std::to_string(best.stages) +
                " (" + best.layers.front() + (best.layers.size() > 1 ? ".." + best.layers.back() : "") +
                ") needs " + sharing + bytes_text(best.needed) + " on device " +
                std::to_string(number(best.device)) + " in the best attempt, " +
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

void refuse_unfinished() {
  throw Error(ErrorKind::run,
              "the time limit ended the search before any plan was found; give it longer with --time-limit");
}

Infeasible explain_infeasible(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                              const PlanRequest& request, const SearchOutcome& outcome) {
  const std::int64_t limit = largest_limit(cluster, request);
  const Problem problem{profile, cluster, graph, request};
  const BestAttempt best = best_attempt(problem);
  if (best.stopped && best.limit == kNoBytes) refuse_unfinished();
  std::int64_t placed = outcome.short_by ? limit + outcome.short_by->value : kNoBytes;
  // Planning again for a limit below that of the other schedules is left to models where it is short.
  const bool small = graph.size() * static_cast<int>(cluster.devices.size()) <= kLimitedWork;
  const bool tight = best.limit == kNoBytes || (small && !best.stopped);
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
  none.reason += (tight && best.sharers == 1 ? "; smallest feasible limit " : "; fits with a limit of ") +
                 bytes_text(least);
  none.remedy = find_remedy(problem, none.smallest_limit);
  return none;
}

}  // namespace pp::plan
