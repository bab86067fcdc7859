#include "libplan/search/infeasible.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "libplan/cost/priced_model.h"
#include "libplan/search/cases.h"

namespace pp::plan {
namespace {

constexpr std::int64_t kNoBytes = std::numeric_limits<std::int64_t>::max();

/// The attempt that needs the least memory, and the stage that needs it.
struct BestAttempt {
  std::int64_t limit = kNoBytes;  ///< bytes with which it fits; kNoBytes: no attempt at all
  std::vector<std::string> layers;
  int stage = 0;
  int stages = 0;
  DeviceId device{};
};

/// A partition of this case that keeps to `bytes` per device; empty: none.
Partition fitting(const PlanCase& one, const Cluster& cluster, const PlanRequest& request, std::int64_t bytes) {
  MemoryLimit limit = one.devices.limit;
  limit.bytes = bytes;
  const StageMemory memory(one.chain, one.in_flight, limit);
  SearchCase what = search_case(one, memory, cluster, request);
  what.limited = true;
  return find_fitting(what, one.space);
}

std::int64_t largest(const PlanCase& one, const Partition& partition, std::size_t* stage) {
  const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
  const std::vector<StageBytes> parts = memory.stages(partition);
  const auto most = std::max_element(parts.begin(), parts.end(), [](const StageBytes& a, const StageBytes& b) {
    return a.total() < b.total();
  });
  if (stage != nullptr) *stage = static_cast<std::size_t>(most - parts.begin());
  return most->total() + one.devices.limit.context;
}

void describe(BestAttempt& attempt, const PlanCase& one, const Cluster& cluster, const PlanGraph& graph,
              const Partition& partition) {
  std::size_t stage = 0;
  attempt.limit = largest(one, partition, &stage);
  attempt.stage = static_cast<int>(stage);
  attempt.stages = static_cast<int>(partition.size());
  attempt.layers.clear();
  int worker = 0;
  for (std::size_t s = 0; s < stage; ++s) worker += partition[s].replicas;
  attempt.device =
      cluster.devices[static_cast<std::size_t>(one.devices.positions[static_cast<std::size_t>(worker)])].id;
  for (int p = partition[stage].begin; p < partition[stage].end; ++p) {
    const int layer = one.order.layers[static_cast<std::size_t>(p)];
    attempt.layers.push_back(graph.layers[static_cast<std::size_t>(layer)].name);
  }
}

/// The least bytes per device over all cases, exact. A case that cannot beat the best so far costs one probe.
BestAttempt best_attempt(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                         const PlanRequest& request) {
  BestAttempt best;
  for_each_case(profile, cluster, graph, request, [&](const PlanCase& one) {
    Partition partition = fitting(one, cluster, request, best.limit == kNoBytes ? kNoBytes : best.limit - 1);
    if (partition.empty()) return;
    std::int64_t low = 0;  // does not fit
    std::int64_t high = largest(one, partition, nullptr);
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      Partition smaller = fitting(one, cluster, request, middle);
      if (smaller.empty()) {
        low = middle;
      } else {
        partition = std::move(smaller);
        high = std::min(middle, largest(one, partition, nullptr));
      }
    }
    describe(best, one, cluster, graph, partition);
  });
  return best;
}

bool feasible(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
              const PlanRequest& request) {
  bool found = false;
  try {
    for_each_case(profile, cluster, graph, request, [&](const PlanCase& one) {
      if (!found) found = !fitting(one, cluster, request, one.devices.limit.bytes).empty();
    });
  } catch (const Error&) {
    return false;  // the changed request is not possible at all
  }
  return found;
}

/// The first change that helps, in the order: micro-batches, schedule, devices, memory.
std::string find_remedy(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                        const PlanRequest& request, const std::optional<Bytes>& smallest_limit) {
  if (request.micro_batches || request.micro_batch_size) {
    for (const std::int64_t size : profile.micro_batch_sizes) {
      PlanRequest changed = request;
      changed.micro_batches.reset();
      changed.micro_batch_size = static_cast<int>(size);
      if (request.mini_batch % size == 0 && feasible(profile, cluster, graph, changed)) {
        return "--micro-batch-size " + std::to_string(size);
      }
    }
  }
  if (request.schedule != "auto" && require_schedule(request.schedule).synchronous) {
    for (const ScheduleRow& row : schedule_table()) {
      PlanRequest changed = request;
      changed.schedule = row.name;
      if (row.candidate && feasible(profile, cluster, graph, changed)) return "--schedule " + changed.schedule;
    }
  }
  Cluster larger = cluster;
  const std::size_t most = std::min<std::size_t>(2 * cluster.devices.size() + 8, graph.layers.size());
  while (requested_stages(request) == 0 && larger.devices.size() < most) {
    Device copy = larger.devices.back();
    copy.id = DeviceId{number(copy.id) + 1};
    larger.devices.push_back(copy);
    if (!larger.levels.empty())
      larger.levels.back().devices =
          std::max(larger.levels.back().devices, static_cast<int>(larger.devices.size()));
    if (feasible(profile, larger, graph, request)) return std::to_string(larger.devices.size()) + " devices";
  }
  if (smallest_limit) return "--memory-limit " + std::to_string(smallest_limit->value);
  return {};
}

std::string bytes_text(std::int64_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

/// A layer whose parameters alone exceed the limit: no partition can help.
std::optional<Infeasible> oversized_layer(const Profile& profile, const PlanGraph& graph,
                                          const PlanRequest& request, std::int64_t limit) {
  const OptimizerCost optimizer = optimizer_cost(profile, request.optimizer, request.optimizer_state_ratio);
  std::int64_t most = 0;
  const GraphLayer* worst = nullptr;
  for (const GraphLayer& layer : graph.layers) {
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

}  // namespace

Infeasible explain_infeasible(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                              const PlanRequest& request) {
  const BestAttempt best = best_attempt(profile, cluster, graph, request);
  if (best.limit == kNoBytes) {
    Infeasible none;
    none.reason =
        "no partition has the stages and replicas asked for with these micro-batches; leave one of the "
        "constraints out";
    return none;
  }
  std::int64_t limit = 0;
  for (const DeviceSet& set : device_sets(cluster, request)) limit = std::max(limit, set.limit.bytes);
  Infeasible none = oversized_layer(profile, graph, request, limit).value_or(Infeasible{});
  if (none.reason.empty()) {
    none.layers = best.layers;
    none.short_by = Bytes(best.limit - limit);
    none.stage = best.stage;
    none.device = best.device;
    none.reason = "does not fit: stage " + std::to_string(best.stage) + " of " + std::to_string(best.stages) +
                  " (" + best.layers.front() + (best.layers.size() > 1 ? ".." + best.layers.back() : "") +
                  ") needs " + bytes_text(best.limit) + " on device " + std::to_string(number(best.device)) +
                  " in the best attempt, " + std::to_string(best.limit - limit) + " more than the limit of " +
                  bytes_text(limit);
  }
  none.smallest_limit = Bytes(best.limit);
  none.reason += "; smallest feasible limit " + bytes_text(best.limit);
  none.remedy = find_remedy(profile, cluster, graph, request, none.smallest_limit);
  return none;
}

}  // namespace pp::plan
