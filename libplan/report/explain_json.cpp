#include "libplan/report/explain.h"

#include <nlohmann/json.hpp>

namespace pp::plan {
namespace {

Json to_json(const StepParts& parts) {
  return {{"compute_s", parts.compute.count()},
          {"links_s", parts.links.count()},
          {"bubble_s", parts.bubble.count()}};
}

Json loads_json(const Explanation& why) {
  Json list = Json::array();
  for (const Load& load : why.loads) {
    list.push_back({{"name", load.name},
                    {"busy_s", load.busy.count()},
                    {"slack_s", (why.loads[why.bottleneck].busy - load.busy).count()}});
  }
  return list;
}

Json runner_up_json(const RunnerUp& second) {
  Json json{{"plan", plan_summary(second.alternative)},
            {"step_s", second.alternative.step.count()},
            {"why_not", second.alternative.why_not}};
  if (second.parts) json["parts"] = to_json(*second.parts);
  return json;
}

Json messages_json(const Explanation& why) {
  Json list = Json::array();
  for (const auto& [level, link] : why.messages) {
    list.push_back({{"level", level},
                    {"message_cost_s", link.message_cost.count()},
                    {"overlap", link.overlap},
                    {"duplex", name_of(link.duplex)}});
  }
  return list;
}

Json calibration_json(const Explanation& why) {
  Json list = Json::array();
  for (const RunFactors& run : why.calibration) {
    Json stages = Json::array();
    for (const StageFactors& stage : run.stages) {
      Json json{{"layers", stage.layers}};
      const auto add = [&](const char* key, const std::optional<double>& factor) {
        if (factor) json[key] = *factor;
      };
      add("forward", stage.forward);
      add("backward", stage.backward);
      add("input_gradient", stage.input_gradient);
      add("weight_gradient", stage.weight_gradient);
      add("update", stage.update);
      stages.push_back(std::move(json));
    }
    list.push_back({{"report", run.report}, {"stages", std::move(stages)}});
  }
  return list;
}

Json changes_json(const Explanation& why) {
  Json list = Json::array();
  for (const WhatIf& one : why.changes) {
    if (one.left_out) {
      list.push_back({{"change", one.change}, {"left_out", true}});
      continue;
    }
    Json json{{"change", one.change}, {"feasible", one.step.has_value()}};
    if (one.step) {
      json["step_s"] = one.step->count();
      json["difference"] = *one.step / why.step - 1;
      json["plan"] = one.plan;
    }
    list.push_back(json);
  }
  return list;
}

}  // namespace

Json to_json(const Explanation& why) {
  Json json{{"plan", why.plan},
            {"step_s", why.step.count()},
            {"loads", loads_json(why)},
            {"bottleneck", why.loads[why.bottleneck].name},
            {"parts", to_json(why.parts)},
            {"limited_by", name_of(why.limit)},
            {"lower_bound_s", why.certificate.lower_bound.count()},
            {"gap", why.certificate.gap}};
  if (why.expected_step) json["expected_step_s"] = why.expected_step->count();
  if (!why.windows.empty()) json["windows"] = why.windows;
  if (!why.windows.empty()) json["classic_windows"] = why.classic;
  if (why.step_without_memory_limit)
    json["step_without_memory_limit_s"] = why.step_without_memory_limit->count();
  if (why.memory_left_out) json["memory_left_out"] = true;
  if (why.runner_up) json["runner_up"] = runner_up_json(*why.runner_up);
  if (why.spread) json["spread"] = *why.spread;
  if (!why.calibration.empty()) json["calibration"] = calibration_json(why);
  for (const Machine& machine : why.machines) {
    if (!machine.verdict.empty()) json["machines"].push_back(machine.verdict);
  }
  json["micro_batches"] = why.micro_batches;
  json["depth"] = why.depth;
  if (!why.messages.empty()) json["messages"] = messages_json(why);
  if (why.all_reduce_overlap > 0 || why.overlap_given) {
    json["all_reduce_overlap"] = why.all_reduce_overlap;
    json["all_reduce_overlap_from"] = why.overlap_given ? "request" : "cluster";
  }
  json["changes"] = changes_json(why);
  return json;
}

}  // namespace pp::plan
