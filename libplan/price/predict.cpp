#include <algorithm>
#include <map>
#include <string>

#include "libplan/price/predict.h"
#include "libplan/price/simulated.h"
#include "libplan/request/request.h"
#include "libplan/schedule/closed_forms.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

std::map<std::string, int> layers_by_name(const PlanGraph& graph) {
  std::map<std::string, int> layers;
  for (int l = 0; l < graph.size(); ++l) layers.emplace(graph.layers[at(l)].name, l);
  return layers;
}

int position_of(const Cluster& cluster, const Worker& worker) {
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    if (cluster.devices[d].id == worker.device) return static_cast<int>(d);
  }
  throw Error(ErrorKind::data, "worker " + std::to_string(number(worker.id)) + " runs on device " +
                                   std::to_string(number(worker.device)) + ", which the cluster does not have");
}

/// `graph` null: without layers, for a plan that carries its costs.
Assignment assignment_of(const Plan& plan, const Cluster& cluster, const PlanGraph* graph) {
  const std::map<std::string, int> layers =
      graph == nullptr ? std::map<std::string, int>{} : layers_by_name(*graph);
  Assignment assignment;
  for (const Stage& stage : plan.stages) {
    const auto ids_of = [&](const std::vector<std::string>& names) {
      std::vector<int> ids;
      for (const std::string& name : names) {
        if (graph == nullptr) continue;
        const auto found = layers.find(name);
        if (found == layers.end())
          throw Error(ErrorKind::data, "layer " + name + " of the plan is not in the profile");
        ids.push_back(found->second);
      }
      return ids;
    };
    assignment.stage_layers.push_back(ids_of(stage.layers));
    assignment.recompute.push_back(ids_of(stage.recompute));
    auto& workers = assignment.stage_workers.emplace_back();
    for (const WorkerId worker : stage.workers) workers.push_back(number(worker));
  }
  for (const Worker& worker : plan.workers) {
    assignment.worker_devices.push_back(position_of(cluster, worker));
    assignment.programs.push_back(worker.program);
  }
  assignment.micro_batches = plan.training.micro_batches;
  const ScheduleRow& schedule = require_schedule(plan.schedule.name);
  assignment.synchronous = schedule.synchronous;
  assignment.rules = schedule.rules;
  assignment.policy = plan.schedule.weight_policy;
  assignment.shard = plan.training.shard;
  return assignment;
}

/// Every layer of the profile has to run somewhere.
void require_all_layers(const Assignment& assignment, const PlanGraph& graph) {
  std::vector<char> seen(graph.layers.size(), 0);
  for (const auto& layers : assignment.stage_layers) {
    for (const int layer : layers) seen[at(layer)] = 1;
  }
  const auto missing = std::find(seen.begin(), seen.end(), 0);
  if (missing == seen.end()) return;
  throw Error(ErrorKind::data, "layer " + graph.layers[at(missing - seen.begin())].name +
                                   " of the profile is in no stage of the plan");
}

void check_workers(const Plan& plan) {
  if (std::ssize(plan.workers) <= kWorkerLimit) return;
  throw Error(ErrorKind::data, "/workers: has " + std::to_string(plan.workers.size()) + " entries; at most " +
                                   std::to_string(kWorkerLimit) + " can be simulated");
}

/// A forward and a backward per stage and micro-batch at least.
void check_length(const Plan& plan, std::int64_t micro_batches) {
  if (micro_batches <= kOperationLimit / (2 * std::ssize(plan.stages))) return;
  throw Error(ErrorKind::usage, "updates: " + std::to_string(micro_batches) + " mini-batches of " +
                                    std::to_string(plan.stages.size()) + " stages exceed the limit of " +
                                    std::to_string(kOperationLimit) + " operations; simulate fewer updates");
}

}  // namespace

Cluster cluster_of(const Plan& plan) { return {{}, false, plan.devices, plan.levels}; }

Prediction predict(const Plan& plan, const Profile& profile, const Cluster& cluster,
                   const PlanRequest& options) {
  const PlanGraph graph = make_graph(profile);
  const Assignment assignment = assignment_of(plan, cluster, &graph);
  require_all_layers(assignment, graph);
  const std::vector<int> sizes = micro_batch_sizes(plan.training.mini_batch, plan.training.micro_batches);
  const PricedModel model = price_model(profile, sizes, {options.extrapolate, options.linear_batch});
  const std::vector<OptimizerCost> optimizers =
      optimizer_costs(profile, plan.training.optimizer, options.optimizer_state_ratio, plan.training.precision);
  const bool says_nothing = !options.swap_bandwidth && plan.predicted.swap.bandwidth.value > 0;
  const SwapLink swap = says_nothing ? plan.predicted.swap : swap_link(assignment.rules, cluster, options);
  const PricingContext context{
      graph, model, cluster, optimizers.front(), all_reduce_overlap(cluster, options), swap, optimizers};
  return simulate_prediction(price_stages(context, assignment), assignment, context);
}

SimulationInput simulation_input(const Plan& plan, int updates) {
  if (plan.predicted.stages.size() != plan.stages.size()) {
    throw Error(ErrorKind::data, "/predicted/stages: has " + std::to_string(plan.predicted.stages.size()) +
                                     " entries for " + std::to_string(plan.stages.size()) +
                                     " stages; plan again, or price it with its profile");
  }
  check_workers(plan);
  const Cluster cluster = cluster_of(plan);
  const Assignment assignment = assignment_of(plan, cluster, nullptr);
  PricedStages priced{
      plan.predicted.stages, plan.predicted.edges, {}, plan.predicted.tied_all_reduce, plan.predicted.swap};
  for (const TiedParameter& tied : plan.tied) priced.tied.push_back(tied.stages);
  std::int64_t length = assignment.micro_batches;
  if (!assignment.synchronous) {
    const int round = round_of(assignment);
    length = (updates * length + round - 1) / round * round;
    check_length(plan, length);
  }
  return make_input(priced, assignment, cluster,
                    {plan.predicted.micro_batch_scale, plan.predicted.micro_batch_bytes},
                    plan.predicted.all_reduce_overlap, static_cast<int>(length));
}

int steady_updates(const Plan& plan) {
  return steady_length(assignment_of(plan, cluster_of(plan), nullptr)) / plan.training.micro_batches;
}

}  // namespace pp::plan
