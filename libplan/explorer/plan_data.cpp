#include "libplan/explorer/plan_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "libplan/plan/programs.h"
#include "libplan/report/throughput.h"
#include "libplan/simulate/memory_walk.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

Json times_of(const StageCosts& costs) {
  const std::array times{std::pair{OpKind::forward, costs.forward},
                         std::pair{OpKind::backward, costs.backward},
                         std::pair{OpKind::input_gradient, costs.input_gradient},
                         std::pair{OpKind::weight_gradient, costs.weight_gradient},
                         std::pair{OpKind::recompute, costs.recompute},
                         std::pair{OpKind::all_reduce, costs.all_reduce},
                         std::pair{OpKind::update, costs.update},
                         std::pair{OpKind::load, costs.load},
                         std::pair{OpKind::evict, costs.evict}};
  Json json = Json::object();
  for (const auto& [kind, time] : times) {
    if (time.count() > 0) json[std::string(name_of(kind))] = time.count();
  }
  return json;
}

Json parts_of(const MemoryPeak& peak) {
  const MemoryParts parts{peak.weights, peak.gradients, peak.optimizer, peak.versions,
                          peak.saved,   peak.boundary,  peak.workspace};
  Json json = Json::array();
  for (const MemoryPart& part : kMemoryParts) json.push_back((parts.*part.bytes).value);
  return json;
}

/// What the workers of the stage were promised.
void add_promise(const Plan& plan, const Stage& stage, Json& json) {
  if (plan.predicted.workers.size() != plan.workers.size()) return;
  Seconds busy{};
  const WorkerPrediction* most = nullptr;
  Bytes limit;
  for (const WorkerId worker : stage.workers) {
    const WorkerPrediction& promise = plan.predicted.workers[index(worker)];
    busy = std::max(busy, promise.busy);
    if (most == nullptr || promise.memory.peak > most->memory.peak) most = &promise;
    const Bytes held = device_of(plan, worker).memory;
    if (held > Bytes(0)) limit = limit > Bytes(0) ? std::min(limit, held) : held;
  }
  if (most == nullptr) return;
  json["busy"] = busy.count();
  json["memory"] = parts_of(most->memory);
  json["peak"] = most->memory.peak.value;
  json["limit"] = limit.value;
}

Json stages_of(const Plan& plan) {
  Json list = Json::array();
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    Json json{{"layers", stage.layers}, {"again", stage.recompute.size()}};
    json["workers"] = Json::array();
    for (const WorkerId worker : stage.workers) json["workers"].push_back(number(worker));
    add_promise(plan, stage, json);
    if (s < plan.predicted.stages.size()) {
      json["times"] = times_of(plan.predicted.stages[s]);
      json["saved"] = plan.predicted.stages[s].saved.value;
    }
    Bytes sends, returns;
    for (const StageEdge& edge : plan.predicted.edges) {
      if (index(edge.from) == s) sends += edge.activation;
      if (index(edge.to) == s) returns += edge.gradient;
    }
    json["sends"] = sends.value;
    json["returns"] = returns.value;
    list.push_back(std::move(json));
  }
  return list;
}

/// Places of the nodes' names in their list.
std::vector<int> nodes_of(const Plan& plan, Json& names) {
  std::map<std::string, int> places;
  std::vector<int> nodes;
  names = Json::array();
  for (const Worker& worker : plan.workers) {
    const std::string& name = device_of(plan, worker.id).node;
    const auto [place, is_new] = places.try_emplace(name, static_cast<int>(places.size()));
    if (is_new) names.push_back(name);
    nodes.push_back(place->second);
  }
  return nodes;
}

Json workers_of(const Plan& plan, const std::vector<int>& nodes) {
  Json list = Json::array();
  for (const Worker& worker : plan.workers) {
    const Device& device = device_of(plan, worker.id);
    list.push_back({nodes[index(worker.id)], to_text(device), device.memory.value});
  }
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const WorkerId worker : plan.stages[s].workers) list[index(worker)].push_back(s);
  }
  return list;
}

Json links_of(const Plan& plan, const std::vector<int>& nodes) {
  Json list = Json::array();
  if (plan.predicted.links.size() <= kMostLinks) {
    for (const LinkPrediction& link : plan.predicted.links)
      list.push_back({number(link.from), number(link.to), link.bytes_per_step.value});
    return list;
  }
  std::map<std::pair<int, int>, std::int64_t> sums;
  for (const LinkPrediction& link : plan.predicted.links)
    sums[{nodes[index(link.from)], nodes[index(link.to)]}] += link.bytes_per_step.value;
  for (const auto& [pair, bytes] : sums) list.push_back({-1 - pair.first, -1 - pair.second, bytes});
  return list;
}

Json alternatives_of(const Plan& plan) {
  Json list = Json::array();
  for (const Alternative& other : plan.alternatives) {
    list.push_back({{"schedule", other.schedule},
                    {"stages", other.stages},
                    {"replicas", other.replicas},
                    {"micro_batches", other.micro_batches},
                    {"step", other.step.count()},
                    {"peak", other.peak.value},
                    {"recompute", other.recompute},
                    {"why_not", other.why_not}});
  }
  return list;
}

/// Reports are read without a check of their plan.
bool has_model_layers(const Plan& plan) {
  std::set<std::string_view> names;
  for (const Layer& layer : plan.model.layers) names.insert(layer.name);
  const auto known = [&](const std::string& layer) { return names.contains(layer); };
  return std::ranges::all_of(plan.stages, [&](const Stage& stage) {
    return std::ranges::all_of(stage.layers, known) && std::ranges::all_of(stage.recompute, known);
  });
}

bool is_alternative(const Json& plan, const Json& other) {
  const double step = plan.at("step").get<double>();
  return plan.at("schedule") == other.at("schedule") && plan.at("stages_text") == other.at("stages") &&
         plan.at("replicas_text") == other.at("replicas") &&
         plan.at("micro_batches") == other.at("micro_batches") &&
         std::abs(step - other.at("step").get<double>()) <= 1e-9 * step;
}

}  // namespace

Json plan_data(const Plan& plan, const std::string& name, const std::string& title) {
  const Prediction& promise = plan.predicted;
  Bytes peak;
  for (const WorkerPrediction& worker : promise.workers) peak = std::max(peak, worker.memory.peak);
  Json json{{"name", name},
            {"title", title},
            {"schedule", plan.schedule.name},
            {"stages_text", stages_text(plan)},
            {"replicas_text", replicas_text(plan)},
            {"mini_batch", plan.training.mini_batch},
            {"micro_batches", plan.training.micro_batches},
            {"step", promise.step.count()},
            {"makespan", promise.makespan.count()},
            {"bubble", promise.bubble_fraction},
            {"rate", promise.samples_per_s},
            {"peak", peak.value},
            {"gap", plan.certificate.gap},
            {"lower_bound", plan.certificate.lower_bound.count()}};
  if (promise.expected_step) json["expected_step"] = promise.expected_step->count();
  if (promise.step > Seconds() && has_model_layers(plan)) json["throughput"] = to_json(throughput_of(plan, {}));
  json["stages"] = stages_of(plan);
  const std::vector<int> nodes = nodes_of(plan, json["nodes"]);
  json["workers"] = workers_of(plan, nodes);
  json["slots"] = Json::array();
  for (const Worker& worker : plan.workers) {
    const auto device = std::ranges::find(plan.devices, worker.device, &Device::id);
    json["slots"].push_back(device->slot.value_or(static_cast<int>(device - plan.devices.begin())));
  }
  json["levels"] = Json::array();
  for (const Level& level : plan.levels)
    json["levels"].push_back({level.name, level.devices, level.bandwidth.value, level.latency.count()});
  json["links"] = links_of(plan, nodes);
  json["alternatives"] = alternatives_of(plan);
  return json;
}

void mark_alternatives(Json& plans) {
  for (Json& plan : plans) {
    for (Json& other : plan["alternatives"]) {
      const auto found =
          std::ranges::find_if(plans, [&](const Json& given) { return is_alternative(given, other); });
      if (found != plans.end()) other["shown"] = found - plans.begin();
    }
  }
}

SvgOptions picture_names(const Plan& plan) {
  SvgOptions names;
  for (const Stage& stage : plan.stages) names.stage_layers.push_back(layer_range(stage));
  for (const Worker& worker : plan.workers) {
    const Device& device = *std::ranges::find(plan.devices, worker.device, &Device::id);
    names.devices.push_back((device.node.empty() ? "" : device.node + ' ') + to_text(device));
    names.limits.push_back(device.memory);
  }
  return names;
}

}  // namespace pp::plan
