#include "libplan/peers/peer.h"

#include <nlohmann/json.hpp>

namespace pp::plan {
namespace {

void add_options(Json& json, const PeerOptions& options) {
  json["devices"] = device_count(options);
  json["levels"] = Json::array();
  for (const PeerLevel& level : options.levels) {
    Json one{{"devices", level.devices}};
    if (level.bandwidth.value > 0) one["bandwidth_bytes_per_s"] = level.bandwidth.value;
    json["levels"].push_back(one);
  }
  if (options.model == PeerModel::pipedream_code || options.model == PeerModel::pipedream_paper) {
    json["machines"] = name_of(options.machines);
    json["activation_cost"] = options.activation_compression.has_value();
  }
  if (options.model == PeerModel::piper) json["micro_batches_in_batch"] = options.micro_batches_in_batch;
  if (options.model == PeerModel::dapple) json["mini_batch"] = options.mini_batch;
  if (options.memory_limit) json["memory_limit_bytes"] = options.memory_limit->value;
}

}  // namespace

Json to_json(const PeerPlan& plan, Seconds elapsed) {
  Json json{{"cost_model", name_of(plan.options.model)},
            {"strategy", name_of(plan.options.strategy)},
            {"model", plan.profile}};
  add_options(json, plan.options);
  json["stages"] = Json::array();
  for (const PeerStage& stage : plan.stages) {
    json["stages"].push_back(
        {{"layers", stage.layers}, {"replicas", stage.replicas}, {"compute_s", stage.compute.count()}});
    if (plan.options.model == PeerModel::piper) json["stages"].back()["tensor_degree"] = stage.tensor_degree;
  }
  if (plan.copies > 1) json["copies"] = plan.copies;
  json["cuts"] = cuts_of(plan);
  json["replicas"] = replicas_text(plan);
  const double gap = plan.lower_bound > Seconds() ? plan.objective / plan.lower_bound - 1 : 0;
  json["certificate"] = {{"objective_s", plan.objective.count()},
                         {"lower_bound_s", plan.lower_bound.count()},
                         {"gap", gap},
                         {"search", plan.search}};
  json["search"] = {{"seconds", elapsed.count()}};
  return json;
}

}  // namespace pp::plan
