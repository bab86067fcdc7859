#include "libplan/plan/plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "libplan/schedule/closed_forms.h"
#include "libprofile/core/hash.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

std::string join(const std::vector<std::size_t>& counts, char separator) {
  std::string text;
  for (const std::size_t count : counts) {
    if (!text.empty()) text += separator;
    text += std::to_string(count);
  }
  return text;
}

/// `embedding.weight`
std::string parameter_names(const ResolvedModel& model, int layer) {
  std::string text;
  for (std::size_t i = 0; i < model.layers[at(layer)].parameters.size(); ++i)
    text.append(text.empty() ? "" : ", ").append(parameter_name(model, layer, i));
  return text;
}

}  // namespace

std::string plan_hash(const Plan& plan) {
  if (plan.model.verified && plan.model.weights.empty()) return content_hash(dump_json_compact(to_json(plan)));
  Plan same = plan;
  same.model.verified = true;
  same.model.weights.clear();
  return plan_hash(same);
}

std::string replicas_text(const Plan& plan) {
  std::vector<std::size_t> counts;
  for (const Stage& stage : plan.stages) counts.push_back(stage.workers.size());
  return join(counts, '-');
}

std::string stages_text(const Plan& plan) {
  std::vector<std::size_t> counts;
  for (const Stage& stage : plan.stages) counts.push_back(stage.layers.size());
  return join(counts, '|');
}

int gpu_count(const Plan& plan) { return static_cast<int>(plan.devices.size()) * group_size(plan); }

const Device& device_of(const Plan& plan, WorkerId worker) {
  return *std::ranges::find(plan.devices, plan.workers[index(worker)].device, &Device::id);
}

double slowest_speed(const Plan& plan, const Stage& stage) {
  double speed = std::numeric_limits<double>::infinity();
  for (const WorkerId worker : stage.workers) speed = std::min(speed, device_of(plan, worker).speed);
  return speed;
}

Seconds promised_time(const Plan& plan, const Prediction& predicted, OpKind kind, StageId stage) {
  if (index(stage) >= predicted.stages.size()) return Seconds(0);
  StageCosts costs = predicted.stages[index(stage)];
  if (costs.first && plan.training.micro_batches <= std::ssize(plan.stages[index(stage)].workers)) {
    costs.forward = costs.first->forward;
    costs.backward = costs.first->backward;
    costs.weight_gradient = costs.first->weight_gradient;
  }
  std::vector<double> scales = predicted.micro_batch_scale;
  std::ranges::sort(scales);
  const double scale = scales.empty() ? 1 : scales[scales.size() / 2];
  switch (kind) {
    case OpKind::forward: return scale * costs.forward;
    case OpKind::backward: return scale * costs.backward;
    case OpKind::input_gradient: return scale * costs.input_gradient;
    case OpKind::weight_gradient: return scale * costs.weight_gradient;
    case OpKind::recompute: return scale * costs.recompute;
    case OpKind::all_reduce: return costs.all_reduce;
    case OpKind::update: return costs.update;
    case OpKind::load: return costs.load;
    case OpKind::evict: return costs.evict;
    case OpKind::tied_all_reduce: break;  // of a group of stages, and measured without its waiting
  }
  return Seconds(0);
}

std::vector<TiedParameter> tied_parameters(const ResolvedModel& model, const std::vector<Stage>& stages) {
  std::map<std::string_view, int> stage_of;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const std::string& layer : stages[s].layers) stage_of.emplace(layer, static_cast<int>(s));
  }
  struct Group {
    std::vector<std::string> layers;
    std::set<int> stages;
  };
  std::map<int, Group> by_owner;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const std::string& name = model.graph.layers[l].name;
    const auto stage = stage_of.find(name);
    if (stage == stage_of.end() || model.layers[l].weights_layer < 0) continue;
    Group& group = by_owner[model.layers[l].weights_layer];
    group.layers.push_back(name);
    group.stages.insert(stage->second);
  }
  std::vector<TiedParameter> tied;
  for (auto& [owner, group] : by_owner) {
    if (group.stages.size() < 2) continue;
    tied.push_back({parameter_names(model, owner), std::move(group.layers), {}});
    for (const int stage : group.stages) tied.back().stages.push_back(StageId{stage});
  }
  return tied;
}

std::vector<int> micro_batch_sizes(int mini_batch, int micro_batches) {
  if (micro_batches < 1) {
    throw Error(ErrorKind::usage, "micro_batches = " + std::to_string(micro_batches) + "; give at least 1");
  }
  if (micro_batches > mini_batch) {
    throw Error(ErrorKind::usage, "micro_batches = " + std::to_string(micro_batches) +
                                      " exceeds the mini-batch of " + std::to_string(mini_batch) + " samples");
  }
  if (micro_batches > kMicroBatchLimit) {
    throw Error(ErrorKind::usage, "micro_batches = " + std::to_string(micro_batches) +
                                      " exceeds the limit of " + std::to_string(kMicroBatchLimit) +
                                      "; use larger micro-batches");
  }
  std::vector<int> sizes(at(micro_batches), mini_batch / micro_batches);
  for (int m = 0; m < mini_batch % micro_batches; ++m) ++sizes[at(m)];
  return sizes;
}

void require_model(const Plan& plan, const ModelGraph& model) {
  const std::string planned = model_hash(plan.model);
  const std::string given = model_hash(model);
  if (planned == given) return;
  throw Error(ErrorKind::data, "the plan is for model \"" + plan.model.name + "\" (" + planned +
                                   "), not for \"" + model.name + "\" (" + given + "); plan this model");
}

void require_profile(const Plan& plan, const Profile& profile) {
  require_model(plan, profile.model);
  const std::string given = profile_hash(profile);
  if (plan.profile_hash == given) return;
  throw Error(ErrorKind::data, "/profile_hash: the plan was made from profile " + plan.profile_hash +
                                   ", not from " + given + "; plan again with this profile");
}

void require_whole_profile(const Plan& plan, const Profile& profile) {
  require_profile(plan, profile);
  const auto others = plan.context.find("profile_of");
  if (others == plan.context.end()) return;
  throw Error(ErrorKind::data, "/context/profile_of: the plan has times of " + others->second +
                                   ", too, which are not at hand when it is planned anew; plan with one "
                                   "profile, without --profile-of");
}

}  // namespace pp::plan
