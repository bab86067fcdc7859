// All plans of a small request, each as the simulator prices it: what a planner's plan is compared with.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "libplan/cost/priced_model.h"
#include "libplan/price/recompute_choice.h"
#include "libplan/price/simulated.h"
#include "libplan/request/request.h"
#include "libplan/search/planner.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/graphs.h"

namespace pp::plan::test {

/// Calls `visit` with every choice of what stages of these layers run again.
inline void for_each_choice(const std::vector<std::vector<int>>& stages,
                            const std::function<void(const RecomputeChoice&)>& visit) {
  RecomputeChoice choice;
  const std::function<void()> extend = [&] {
    if (choice.size() == stages.size()) return visit(choice);
    const std::vector<int>& layers = stages[choice.size()];
    choice.push_back({Recompute::always});
    extend();
    for (unsigned set = 0; set < 1U << layers.size(); ++set) {
      choice.back() = {};
      for (std::size_t i = 0; i < layers.size(); ++i) {
        if ((set >> i & 1) != 0) choice.back().layers.push_back(layers[i]);
      }
      extend();
    }
    choice.pop_back();
  };
  extend();
}

/// The plans of one schedule and micro-batch count, both fixed by the request.
class Enumerated {
 public:
  /// Keeps references to profile, cluster and request.
  Enumerated(const Profile& profile, const Cluster& cluster, const PlanRequest& request)
      : cluster_(cluster),
        request_(request),
        graph_(make_graph(profile)),
        model_(price_model(profile, micro_batch_sizes(request.mini_batch, *request.micro_batches), {})),
        optimizers_(optimizer_costs(profile, request.optimizer, {}, request.precision)) {}

  /// Calls `visit` with every staging under every number of replicas that the schedule takes, on the first
  /// devices in turn.
  void for_each(const std::function<void(const Assignment&)>& visit) const {
    const int devices = static_cast<int>(cluster_.devices.size());
    for (int stages = 1; stages <= std::min(devices, graph_.size()); ++stages) {
      for_each_staging(graph_, stages, [&](const Stages& sets) {
        for_each_replicas(stages, devices, most_replicas(), [&](const std::vector<int>& replicas) {
          const auto assignment = assign(sets, replicas);
          if (assignment && (assignment->rules != RuleSet::clocked || hands_on(assignment->stage_layers)))
            visit(*assignment);
        });
      });
    }
  }

  /// Whether every reader stands in the stage or in the next one, as frames need it.
  bool hands_on(const std::vector<std::vector<int>>& stages) const {
    std::vector<std::size_t> stage_of(graph_.layers.size());
    for (std::size_t s = 0; s < stages.size(); ++s)
      for (const int layer : stages[s]) stage_of[at(layer)] = s;
    for (std::size_t l = 0; l < stage_of.size(); ++l)
      for (const int reader : graph_.layers[l].consumers)
        if (stage_of[at(reader)] > stage_of[l] + 1) return false;
    return true;
  }

  /// Seconds; infinity when a worker's peak is more than its device may use.
  double step(const Assignment& assignment) const {
    const PricingContext context = this->context();
    const Prediction found = simulate_prediction(price_stages(context, assignment), assignment, context);
    for (std::size_t w = 0; w < found.workers.size(); ++w) {
      const Device& device = cluster_.devices[at(assignment.worker_devices[w])];
      if (found.workers[w].memory.peak > Bytes(usable_bytes(device, request_)))
        return std::numeric_limits<double>::infinity();
    }
    return found.step.count();
  }

  /// One step, as it is simulated.
  SimulationInput input(const Assignment& assignment) const {
    const PricingContext context = this->context();
    return make_input(price_stages(context, assignment), assignment, cluster_, model_.scale,
                      context.all_reduce_overlap, assignment.micro_batches);
  }

  /// The least step() over all devices that the workers may have, each at most once.
  double best_placed_step(Assignment assignment) const {
    const std::size_t workers = assignment.worker_devices.size();
    std::vector<int> order(cluster_.devices.size());
    std::iota(order.begin(), order.end(), 0);
    double best = std::numeric_limits<double>::infinity();
    do {
      if (!std::is_sorted(order.begin() + static_cast<std::ptrdiff_t>(workers), order.end()))
        continue;  // only unused devices moved
      std::copy_n(order.begin(), workers, assignment.worker_devices.begin());
      best = std::min(best, step(assignment));
    } while (std::ranges::next_permutation(order).found);
    return best;
  }

 private:
  /// A stream's replicas take turns over its micro-batches, a step's share them.
  int most_replicas() const {
    const bool synchronous = require_schedule(request_.schedule).synchronous;
    return synchronous ? *request_.micro_batches : static_cast<int>(cluster_.devices.size());
  }

  PricingContext context() const {
    return {graph_, model_,     cluster_, optimizers_.front(), all_reduce_overlap(cluster_, request_),
            {},     optimizers_};
  }

  std::optional<Assignment> assign(const Stages& sets, const std::vector<int>& replicas) const {
    Assignment assignment;
    assignment.stage_layers = sets;
    int workers = 0;
    for (const int count : replicas) {
      auto& ids = assignment.stage_workers.emplace_back(at(count));
      std::iota(ids.begin(), ids.end(), workers);
      workers += count;
    }
    assignment.worker_devices.resize(at(workers));
    std::iota(assignment.worker_devices.begin(), assignment.worker_devices.end(), 0);
    assignment.micro_batches = *request_.micro_batches;
    const ScheduleRow& row = require_schedule(request_.schedule);
    assignment.synchronous = row.synchronous;
    assignment.rules = row.rules;
    assignment.policy = policy_of(row, request_);
    if (request_.shard == ShardChoice::optimizer) assignment.shard = Shard::optimizer;
    try {
      assignment.programs = make_schedule({.name = request_.schedule,
                                           .replicas = replicas,
                                           .micro_batches = assignment.micro_batches,
                                           .window = window_of(request_),
                                           .weight_policy = assignment.policy})
                                .workers;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      return std::nullopt;
    }
    return assignment;
  }

  const Cluster& cluster_;
  const PlanRequest& request_;
  PlanGraph graph_;
  PricedModel model_;
  std::vector<OptimizerCost> optimizers_;
};

}  // namespace pp::plan::test
