#include "libplan/search/cases.h"

#include <limits>

#include "libplan/cost/priced_model.h"

namespace pp::plan {
namespace {

/// Times as on a device `speed` times as fast as the profiled one.
PricedModel at_speed(PricedModel model, double speed) {
  const auto scale = [&](LayerPrice& price) {
    for (double* time : {&price.forward, &price.backward, &price.input_gradient, &price.weight_gradient})
      *time /= speed;
  };
  for (LayerPrice& layer : model.layers) scale(layer);
  scale(model.loss);
  return model;
}

OptimizerCost at_speed(OptimizerCost cost, double speed) {
  cost.update_per_byte /= speed;
  return cost;
}

std::vector<LinearOrder> orders_of(const PlanGraph& graph, const PlanRequest& request,
                                   const PricedModel& model) {
  if (!request.layer_order.empty()) return {{"given", request.layer_order}};
  if (!request.cuts.empty()) return {file_order(graph)};  // cuts count layers in file order
  std::vector<std::int64_t> outputs;
  for (const LayerPrice& layer : model.layers) outputs.push_back(layer.output);
  return linear_orders(graph, outputs);
}

/// A device set at one micro-batch count, as the searches price it and as a bound may.
struct PricedCase {
  const DeviceSet& devices;
  const BatchOption& batch;
  PricedModel model, least;
  OptimizerCost optimizer, least_optimizer;
};

void for_each_priced(const Profile& profile, const Cluster& cluster, const PlanRequest& request,
                     const std::function<void(const PricedCase&)>& visit) {
  const CurveOptions curve{request.extrapolate, request.linear_batch};
  const OptimizerCost optimizer = optimizer_cost(profile, request.optimizer, request.optimizer_state_ratio);
  const std::vector<BatchOption> batches =
      batch_options(profile, request, *requested_schedules(request).front());
  for (const DeviceSet& devices : device_sets(cluster, request)) {
    for (const BatchOption& batch : batches) {
      visit({devices, batch, at_speed(price_model(profile, batch.sizes, curve), devices.speed),
             at_speed(cheapest_model(profile, batch.sizes, curve), devices.best_speed),
             at_speed(optimizer, devices.speed), at_speed(optimizer, devices.best_speed)});
    }
  }
}

using MakeChain = std::function<Chain(const PricedModel&, const OptimizerCost&)>;

/// One layer order, or all of them, with every schedule.
void visit_schedules(const PricedCase& priced, const PlanGraph& graph, const PlanRequest& request,
                     const LinearOrder& order, const MakeChain& make,
                     const std::function<void(const PlanCase&)>& visit) {
  const std::vector<const ScheduleRow*> schedules = requested_schedules(request);
  const Chain chain = make(priced.model, priced.optimizer);
  const Chain bound = make(priced.least, priced.least_optimizer);
  for (const ScheduleRow* schedule : schedules) {
    const int count = static_cast<int>(priced.devices.positions.size());
    const int most = schedule->synchronous ? priced.batch.micro_batches : count;
    visit({priced.devices, priced.batch, order, *schedule, chain, bound,
           search_space(graph, order.layers, request, count, most),
           in_flight_of(*schedule, request, priced.batch.micro_batches), schedule == schedules.front()});
  }
}

}  // namespace

void for_each_case(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                   const PlanRequest& request, const std::function<void(const PlanCase&)>& visit) {
  for_each_priced(profile, cluster, request, [&](const PricedCase& priced) {
    for (const LinearOrder& order : orders_of(graph, request, priced.model)) {
      const auto make = [&](const PricedModel& model, const OptimizerCost& optimizer) {
        return make_chain(graph, order.layers, model.layers, model.loss, optimizer);
      };
      visit_schedules(priced, graph, request, order, make, visit);
    }
  });
}

void for_each_graph_case(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                         const Lattice& lattice, const PlanRequest& request,
                         const std::function<void(const PlanCase&)>& visit) {
  PlanGraph untied = graph;  // the lattice parts no layers that share weights
  untied.tied.clear();
  const auto make = [&](const PricedModel& model, const OptimizerCost& optimizer) {
    return make_lattice_chain(graph, lattice, model.layers, model.loss, optimizer);
  };
  for_each_priced(profile, cluster, request, [&](const PricedCase& priced) {
    visit_schedules(priced, untied, request, {"down-sets", {}}, make, visit);
  });
}

SearchCase search_case(const PlanCase& one, const StageMemory& memory, const Cluster& cluster,
                       const PlanRequest& request) {
  return {.chain = one.chain,
          .bound_chain = one.bound_chain,
          .memory = memory,
          .limited = is_limited(one.devices.limit),
          .synchronous = one.schedule.synchronous,
          .micro_batches = one.batch.micro_batches,
          .all_reduce_overlap = request.all_reduce_overlap,
          .link = slowest_link(cluster),
          .best_link = fastest_link(cluster)};
}

bool is_limited(const MemoryLimit& limit) { return limit.bytes != std::numeric_limits<std::int64_t>::max(); }

}  // namespace pp::plan
