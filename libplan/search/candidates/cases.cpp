#include "libplan/search/candidates/cases.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "libplan/cost/priced_model.h"
#include "libplan/request/plan_request.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/versions.h"
#include "libplan/search/candidates/placed.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// A bound has to hold for schedules that split the backward too, whose halves may add up to less.
PricedModel with_cheaper_backward(PricedModel model) {
  const auto lower = [](LayerPrice& price) {
    price.backward = std::min(price.backward, price.input_gradient + price.weight_gradient);
    for (PassTimes* rest : {&price.crowded, &price.beside})
      rest->backward = std::min(rest->backward, rest->input_gradient + rest->weight_gradient);
  };
  for (LayerPrice& layer : model.layers) lower(layer);
  lower(model.loss);
  return model;
}

std::vector<LinearOrder> orders_of(const PlanGraph& graph, const PlanRequest& request,
                                   const PricedModel& model) {
  if (!request.layer_order.empty()) return {{"given", request.layer_order}};
  if (!request.cuts.empty()) return {file_order(graph)};  // cuts count layers in file order
  std::vector<std::int64_t> outputs;
  for (const LayerPrice& layer : model.layers) outputs.push_back(layer.output);
  return linear_orders(graph, outputs);
}

/// A way to cut the mini-batch, and the schedules that take it.
struct Batch {
  BatchOption option;
  std::vector<const ScheduleRow*> schedules;
};

/// Micro-batches that a stage may have in flight, and weight versions: of streams by the widest windows, twice
/// what supplies the stages behind (schedule/windows.cpp).
std::int64_t most_in_flight(const ScheduleRow& row, const PlanRequest& request, const BatchOption& option) {
  std::int64_t most = row.synchronous ? option.micro_batches : 4 * kWorkerLimit;
  for (const int window : request.windows) most = std::max<std::int64_t>(most, window);
  return most;
}

/// Schedules that refuse the request's micro-batches, or sizes that the profile does not price, are left out,
/// unless all are.
std::vector<Batch> batches_of(const Profile& profile, const PlanRequest& request) {
  std::vector<Batch> batches;
  std::optional<Error> refusal;
  const CurveOptions curve{request.extrapolate, request.linear_batch};
  const auto add = [&](const ScheduleRow* row, const BatchOption& option) {
    auto known =
        std::ranges::find_if(batches, [&](const Batch& batch) { return batch.option.sizes == option.sizes; });
    if (known == batches.end()) known = batches.insert(known, {option, {}});
    known->schedules.push_back(row);
  };
  const auto unless_refused = [&](const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      if (!refusal) refusal = error;
    }
  };
  for (const ScheduleRow* row : planned_schedules(profile, request)) {
    unless_refused([&] {
      for (const BatchOption& option : batch_options(profile, request, *row)) {
        unless_refused([&] {
          check_update(*row, request, option.micro_batches);
          check_bytes(profile, price_model(profile, option.sizes, curve),
                      most_in_flight(*row, request, option));
          add(row, option);
        });
      }
    });
  }
  if (batches.empty() && refusal) throw *refusal;
  return batches;
}

/// A device set at one micro-batch count, as the searches price it and as a bound may.
struct PricedCase {
  const Cluster& cluster;
  DeviceSet devices;
  Batch batch;
  KindCost cost = {}, least = {};
  PricedModel least_split = {};      ///< of schedules that split the backward
  std::vector<KindCost> kinds = {};  ///< by Device::profile, at the speed of the slowest; empty: one alone
};

/// Adds what devices of the set take: each kind at its slowest and its fastest speed.
void add_kinds(PricedCase& one, const PricedModel& model, const PricedModel& cheapest,
               const std::vector<OptimizerCost>& optimizers) {
  const auto cost_of = [&](PricedModel kind, int k) {
    kind.others.clear();
    return KindCost{std::move(kind), optimizers[at(k)]};
  };
  std::map<int, std::pair<double, double>> speeds;
  for (const int position : one.devices.positions) {
    const Device& device = one.cluster.devices[at(position)];
    auto& [slow, fast] = speeds.try_emplace(device.profile, device.speed, device.speed).first->second;
    slow = std::min(slow, device.speed), fast = std::max(fast, device.speed);
  }
  for (const auto& [k, range] : speeds) {
    KindCost slow = at_speed(cost_of(model.of_kind(k), k), range.first);
    KindCost fast = at_speed(cost_of(cheapest.of_kind(k), k), range.second);
    const bool first = k == speeds.begin()->first;
    one.cost = first ? std::move(slow) : slower_of(std::move(one.cost), std::move(slow));
    one.least = first ? std::move(fast) : faster_of(std::move(one.least), std::move(fast));
  }
  one.devices.slowness.assign(optimizers.size(), one.devices.best_speed);
  for (int k = 0; k < std::ssize(optimizers) && speeds.size() > 1; ++k) {
    one.devices.slowness[at(k)] = least_slowness(cost_of(cheapest.of_kind(k), k), one.least);
    one.kinds.push_back(at_speed(cost_of(model.of_kind(k), k), one.devices.speed));
  }
}

void for_each_priced(const Profile& profile, const Cluster& cluster, const PlanRequest& request,
                     const std::function<void(std::shared_ptr<const PricedCase>)>& visit) {
  const CurveOptions curve{request.extrapolate, request.linear_batch};
  const std::vector<OptimizerCost> optimizers =
      optimizer_costs(profile, request.optimizer, request.optimizer_state_ratio, request.precision);
  const std::vector<Batch> batches = batches_of(profile, request);
  for (const DeviceSet& devices : device_sets(cluster, request, kind_rates(profile))) {
    for (const Batch& batch : batches) {
      const std::vector<int>& sizes = batch.option.sizes;
      PricedCase one{cluster, devices, batch};
      add_kinds(one, never_falling(price_model(profile, sizes, curve)),
                never_falling(cheapest_model(profile, sizes, curve)), optimizers);
      one.least_split = with_cheaper_backward(one.least.model);
      visit(std::make_shared<const PricedCase>(std::move(one)));
    }
  }
}

/// `auto` where memory is limited: without, as a whole everywhere, and what the stages need. The plans of each
/// compete; the last alone says what no plan can beat, the first that recompute never makes a plan slower.
/// Where it is uniform the first two are all there is.
std::vector<RecomputeMode> recompute_modes(const PlanRequest& request, bool limited) {
  if (request.recompute != RecomputeMode::automatic) return {request.recompute};
  if (!limited) return {RecomputeMode::never};
  if (request.recompute_extent == RecomputeExtent::uniform)
    return {RecomputeMode::never, RecomputeMode::always};
  // A trainer that recomputes blocks does not know the R of whole stages.
  if (request.recompute_extent == RecomputeExtent::first_blocks)
    return {RecomputeMode::never, RecomputeMode::automatic};
  return {RecomputeMode::never, RecomputeMode::always, RecomputeMode::automatic};
}

int nodes_of(const Cluster& cluster, const DeviceSet& devices) {
  std::set<std::string_view> nodes;
  for (const int position : devices.positions) nodes.insert(cluster.devices[at(position)].node);
  return static_cast<int>(nodes.size());
}

/// What prices can read of it where nothing is too large: who joins the gradients, and what runs again.
InFlight without_limit(const InFlight& whole) {
  return {.policy = is_served(whole.policy) ? whole.policy : WeightPolicy::flush,
          .batch = whole.batch,
          .recompute = whole.recompute,
          .sharded = whole.sharded,
          .units = whole.units};
}

/// One layer order of a priced case, with its chains, made when a schedule first asks. Rows that are priced
/// alike have the same ones.
class OrderedModel {
 public:
  OrderedModel(std::shared_ptr<const PricedCase> priced, const PlanGraph& graph, LinearOrder order,
               const Lattice* lattice)
      : shared_(std::move(priced)),
        priced_(*shared_),
        graph_(graph),
        order_(std::move(order)),
        lattice_(lattice),
        units_(graph, priced_.cost.model.layers, order_.layers) {}

  const PricedCase& priced() const { return priced_; }
  const LinearOrder& order() const { return order_; }
  const ChainUnits& units() const { return units_; }

  /// As the searches price it; where stages hold versions and some make theirs faster than in place, as if all
  /// did, so that no estimate is above the price.
  const Chain& objective(WeightPolicy policy) {
    std::optional<Chain>& chain = objectives_[updates_faster(policy)];
    if (chain) return *chain;
    chain = make(priced_.cost.model, priced_.cost.optimizer, policy, nullptr);
    for (const auto& [model, optimizer] : priced_.kinds)
      chain->kinds.push_back(make(model, optimizer, policy, nullptr));
    return *chain;
  }
  /// As a bound may.
  const Chain& bound(WeightPolicy policy, bool split_backward) {
    return least(bounds_, policy, split_backward, nullptr);
  }
  /// The same over the lattice; null: there is none.
  const Chain* any_order(WeightPolicy policy, bool split_backward) {
    return lattice_ == nullptr ? nullptr : &least(any_orders_, policy, split_backward, lattice_);
  }

 private:
  using Bounds = std::map<std::pair<bool, bool>, std::optional<Chain>>;

  bool updates_faster(WeightPolicy policy) const {
    return holds_versions(policy) && priced_.least.optimizer.new_version < 1;
  }
  const Chain& least(Bounds& bounds, WeightPolicy policy, bool split_backward, const Lattice* lattice) {
    std::optional<Chain>& chain = bounds[{split_backward, updates_faster(policy)}];
    const PricedModel& model = split_backward ? priced_.least_split : priced_.least.model;
    return chain ? *chain : chain.emplace(make(model, priced_.least.optimizer, policy, lattice));
  }
  Chain make(const PricedModel& model, const OptimizerCost& optimizer, WeightPolicy policy,
             const Lattice* lattice) const {
    OptimizerCost cost = optimizer;
    if (updates_faster(policy)) cost.pace = cost.new_version;
    Chain chain = lattice == nullptr ? make_chain(graph_, order_.layers, model.layers, model.loss, cost)
                                     : make_lattice_chain(graph_, *lattice, model.layers, model.loss, cost);
    chain.fixed = model.fixed;
    chain.profiled_devices = model.profiled_devices;
    chain.nodes = nodes_of(priced_.cluster, priced_.devices);
    return chain;
  }

  const std::shared_ptr<const PricedCase> shared_;
  const PricedCase& priced_;
  const PlanGraph& graph_;
  const LinearOrder order_;
  const Lattice* const lattice_;
  const ChainUnits units_;
  std::map<bool, std::optional<Chain>> objectives_;
  Bounds bounds_, any_orders_;
};

/// One layer order with every schedule.
void visit_schedules(const std::shared_ptr<OrderedModel>& ordered, const PlanGraph& graph,
                     const PlanRequest& request, const std::function<void(const PlanCase&)>& visit) {
  const PricedCase& priced = ordered->priced();
  const LinearOrder& order = ordered->order();
  const auto& [batch, schedules] = priced.batch;
  const int count = static_cast<int>(priced.devices.positions.size());
  const bool limited = is_limited(priced.devices.limit);
  std::vector<SearchPart> searches;
  const auto visit_parts = [&](const ScheduleRow& schedule, RecomputeMode mode, Shard shard) {
    const int most = schedule.synchronous ? batch.micro_batches : count;
    const InFlight in_flight = in_flight_of(schedule, request, batch.micro_batches);
    const Chain& chain = ordered->objective(in_flight.policy);
    const Chain& least = ordered->bound(in_flight.policy, schedule.split_backward);
    const Chain* const any = ordered->any_order(in_flight.policy, schedule.split_backward);
    SearchPart whole{search_space(graph, order.layers, request, count, most), in_flight, schedule.synchronous,
                     &least};
    whole.in_flight.batch = priced.cost.model.batch;
    whole.in_flight.recompute = mode;
    whole.in_flight.sharded = shard == Shard::optimizer;
    whole.in_flight.units = &ordered->units();
    for (SearchPart& part :
         search_parts(schedule, request, whole, batch.micro_batches, limited, priced.cluster)) {
      if (!limited) part.in_flight = without_limit(part.in_flight);
      const int search = static_cast<int>(std::ranges::find(searches, part) - searches.begin());
      const bool fresh = search == std::ssize(searches);
      if (fresh && !places_stages(schedule)) searches.push_back(part);
      visit(
          {std::move(part), ordered, priced.devices, batch, order, schedule, chain, least, any, search, fresh});
    }
  };
  const std::vector<RecomputeMode> modes = recompute_modes(request, limited);
  for (const RecomputeMode mode : modes) {
    for (const ScheduleRow* schedule : schedules) {
      // Where a schedule places its stages, `automatic` begins with all as a whole.
      const bool again = mode == RecomputeMode::always && modes.back() == RecomputeMode::automatic;
      if (again && places_stages(*schedule)) continue;
      for (const Shard shard : shards_of(*schedule, request)) visit_parts(*schedule, mode, shard);
    }
  }
}

}  // namespace

void for_each_case(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                   const PlanRequest& request, const std::function<void(const PlanCase&)>& visit,
                   const Lattice* lattice) {
  for_each_priced(profile, cluster, request, [&](const std::shared_ptr<const PricedCase>& priced) {
    const Lattice* first = lattice;
    for (LinearOrder& order : orders_of(graph, request, priced->cost.model)) {
      const auto ordered =
          std::make_shared<OrderedModel>(priced, graph, std::move(order), std::exchange(first, nullptr));
      visit_schedules(ordered, graph, request, visit);
    }
  });
}

std::vector<std::string_view> unpriced_schedules(const Profile& profile, const PlanRequest& request) {
  std::vector<std::string_view> names;
  const std::vector<Batch> batches = batches_of(profile, request);
  for (const ScheduleRow* row : planned_schedules(profile, request)) {
    const auto takes = [&](const Batch& batch) { return std::ranges::count(batch.schedules, row) > 0; };
    if (std::ranges::none_of(batches, takes)) names.push_back(row->name);
  }
  return names;
}

SearchCase search_case(const PlanCase& one, const StageMemory& memory, const Cluster& cluster,
                       const PlanRequest& request) {
  return {.chain = one.chain,
          .bound_chain = one.bound_chain,
          .memory = memory,
          .synchronous = one.synchronous,
          .micro_batches = one.in_flight.batch,
          .all_reduce_overlap = request.all_reduce_overlap.value_or(0),
          .links = slowest_links(cluster),
          .best_links = fastest_links(cluster),
          .cluster = cluster};
}

Finalist finalist_of(const PlanCase& one, const Candidate& candidate) {
  Finalist finalist;
  finalist.partition = candidate.partition;
  finalist.order = one.order.layers;
  finalist.micro_batches = one.batch.micro_batches;
  finalist.schedule = &one.schedule;
  finalist.recompute = one.in_flight.recompute;
  finalist.shard = one.in_flight.sharded ? Shard::optimizer : Shard::none;
  finalist.devices = one.devices.positions;
  finalist.origin = candidate.origin;
  finalist.estimate = candidate.estimate;
  finalist.bound = candidate.bound;
  return finalist;
}

}  // namespace pp::plan
