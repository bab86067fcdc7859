#include "libplan/report/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "libplan/cost/constants.h"
#include "libplan/cost/links.h"
#include "libplan/plan/programs.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {

namespace {

/// The profiled size whose times count for a micro-batch of `size` samples.
const LayerPoint* point_for(const LayerProfile& layer, int size) {
  const LayerPoint* found = nullptr;
  for (const LayerPoint& point : layer.points) {
    if (!point.out_of_memory && (found == nullptr || point.micro_batch_size <= size)) found = &point;
  }
  return found;
}

Limit limit_of(const StepParts& parts, bool memory) {
  if (memory) return Limit::memory;
  if (parts.compute >= std::max(parts.links, parts.bubble)) return Limit::compute;
  return parts.links >= parts.bubble ? Limit::links : Limit::bubble;
}

std::optional<RunnerUp> runner_up(const Plan& plan, const Profile& profile, const Cluster& cluster,
                                  const PlanRequest& request) {
  const auto found = std::ranges::find_if(plan.alternatives, [&](const Alternative& other) {
    return other.stages != stages_text(plan) || other.replicas != replicas_text(plan) ||
           other.micro_batches != plan.training.micro_batches;
  });
  if (found == plan.alternatives.end()) return std::nullopt;
  RunnerUp second{*found, {}};
  if (const std::optional<Plan> other = plan_of(second.alternative, profile, cluster, request))
    second.parts = step_parts(*other);
  return second;
}

std::vector<LevelMessages> messages_of(const Cluster& cluster) {
  std::vector<LevelMessages> list;
  for (const Level& level : cluster.levels) {
    const Link link = link_of(level);
    if (asks_devices(link) || link.duplex == Duplex::half) list.push_back({level.name, link});
  }
  return list;
}

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

using pp::to_text;

double share_of(Seconds part, Seconds whole) { return whole > Seconds{} ? part / whole : 0; }

/// `12.5 %`; what rounds to nothing without being nothing is `under 0.1 %`.
std::string percent(double share) {
  if (!std::isfinite(share)) return "-";
  if (share > 0 && share < 0.0005) return "under 0.1 %";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

/// `12.5 % slower`, `no change`
std::string change_text(double difference) {
  constexpr double kShown = 0.0005;  // what rounds to 0.1 %
  if (std::abs(difference) < kShown) return "no change";
  return percent(std::abs(difference)) + (difference > 0 ? " slower" : " faster");
}

double margin(const Explanation& why) { return why.runner_up->alternative.step / why.step - 1; }

std::string list_text(const std::vector<int>& numbers) {
  std::string text;
  for (const int n : numbers) text.append(text.empty() ? "" : ", ").append(std::to_string(n));
  return text;
}

/// `Devices: 1 device of 2 cores beats ...`; nothing where one machine was planned for.
std::string machines_text(const Explanation& why) {
  std::string text;
  for (const Machine& machine : why.machines) {
    if (machine.verdict.empty()) continue;
    text += "Devices: " + machine.verdict + (machine.plan.empty() ? "" : " (" + machine.plan + ")") + ".\n";
  }
  return text;
}

/// `Calibrated by report 1f0e..: stage 0 (conv1 .. conv3) F x 1.02, B x 0.97; stage 1 ...`
std::string calibration_text(const Explanation& why) {
  std::string text;
  for (const RunFactors& run : why.calibration) {
    text += "Calibrated by report " + run.report + ", measured/profiled:\n";
    for (std::size_t s = 0; s < run.stages.size(); ++s) {
      const StageFactors& stage = run.stages[s];
      text += "  its stage " + std::to_string(s) + " (" + stage.layers.front() +
              (stage.layers.size() > 1 ? " .. " + stage.layers.back() : "") + "):";
      const auto add = [&](char kind, const std::optional<double>& factor) {
        std::array<char, 32> number{};
        if (!factor) return;
        std::snprintf(number.data(), number.size(), " %c %.3f", kind, *factor);
        text += number.data();
      };
      add('F', stage.forward);
      add('B', stage.backward);
      add('I', stage.input_gradient);
      add('W', stage.weight_gradient);
      add('U', stage.update);
      text += '\n';
    }
  }
  return text;
}

/// `Expected: 9.91 ms per step on average, 1.9 % more than ...`; nothing for a profile without spread.
std::string expected_text(const Explanation& why) {
  if (!why.expected_step) return "";
  const double beyond = *why.expected_step / why.step - 1;
  std::string than = "as";
  if (const std::string share = percent(std::abs(beyond)); share != percent(0))
    than = share + (beyond > 0 ? " more than" : " less than");
  return "Expected: " + to_text(*why.expected_step) + " per step on average, " + than +
         " with every operation at its median: they vary, and who waits for several waits for the slowest.\n";
}

/// `Windows: 7, 1 micro-batches held per worker, stage by stage; ...`; nothing for schedules without.
std::string windows_text(const Explanation& why) {
  if (why.windows.empty()) return "";
  const std::string text = "Windows: " + list_text(why.windows) + " micro-batches held, stage by stage";
  if (why.windows == why.classic) return text + ", as the schedule's rule has it.\n";
  return text + "; the schedule's rule (--window win) holds " + list_text(why.classic) + ".\n";
}

std::string loads_text(const Explanation& why) {
  const Load& most = why.loads[why.bottleneck];
  std::string text = "Bottleneck: " + most.name + ", busy " + to_text(most.busy) + " of every step (" +
                     percent(share_of(most.busy, why.step)) + ").\n";
  for (std::size_t i = 0; i < why.loads.size(); ++i) {
    if (i == why.bottleneck) continue;
    const Seconds slack = most.busy - why.loads[i].busy;
    text += "  " + why.loads[i].name + " is busy ";
    text += slack <= kRounding * most.busy ? "as long\n"
                                           : to_text(why.loads[i].busy) + ", " + to_text(slack) + " (" +
                                                 percent(share_of(slack, most.busy)) + ") less\n";
  }
  return text;
}

std::string limit_text(const Explanation& why) {
  static constexpr std::array<std::string_view, 3> kSentences{
      "Compute limits it: the largest part is the busiest worker's own work.",
      "The links limit it: the largest part is messages and all-reduces.",
      "The bubble limits it: the largest part is fill, drain and waiting."};
  const auto line = [&](const std::string& part, Seconds time) {
    return "  " + part + ": " + to_text(time) + " (" + percent(share_of(time, why.step)) + ")\n";
  };
  const std::string text = "Where the step goes:\n" + line("compute of the busiest worker", why.parts.compute) +
                           line("messages and all-reduces", why.parts.links) +
                           line("fill, drain and waiting for other stages", why.parts.bubble);
  if (why.step_without_memory_limit) {
    return text + "Memory limits it: with room for everything the best plan takes " +
           to_text(*why.step_without_memory_limit) + " per step.\n";
  }
  return text + std::string(kSentences.at(index(why.limit))) + '\n' +
         (why.memory_left_out ? "Whether memory limits it is not known: the time limit came first.\n" : "");
}

/// `Messages of level node: each keeps both devices for 20 us; ...`; nothing for what is usual.
std::string messages_text(const Explanation& why) {
  std::string text;
  for (const auto& [level, link] : why.messages) {
    std::string ask;
    const auto add = [&](const std::string& part) { ask += (ask.empty() ? " " : "; ") + part; };
    if (link.message_cost > Seconds{}) add("each tensor keeps both devices for " + to_text(link.message_cost));
    if (link.overlap < 1)
      add(percent(link.overlap) + " of a transfer passes beside the devices' work, the rest keeps both");
    if (link.duplex == Duplex::half) add("a port serves one direction at a time");
    text += "Messages of level " + level + ':' + ask + ".\n";
  }
  return text;
}

/// Nothing where the all-reduce follows the last backward and nobody asked otherwise.
std::string overlap_text(const Explanation& why) {
  if (why.all_reduce_overlap == 0 && !why.overlap_given) return "";
  return "All-reduce: runs beside " + percent(why.all_reduce_overlap) + " of the last backward, as " +
         (why.overlap_given ? "--all-reduce-overlap says" : "measured of the outermost level") + ".\n";
}

std::string certainty_text(const Certificate& certificate) {
  constexpr double kShown = 0.0005;  // percent() rounds what is less to 0
  const std::string bound = to_text(certificate.lower_bound);
  if (certificate.lower_bound <= Seconds(0) && certificate.objective > Seconds(0))
    return "How sure: nothing is proven, the lower bound is 0.\n";
  if (certificate.gap < kRounding)
    return "How sure: proven, no plan of the searched family takes less than " + bound + ".\n";
  return "How sure: no plan of the searched family takes less than " + bound + "; this one takes " +
         (certificate.gap < kShown ? "less than 0.1 %" : percent(certificate.gap)) + " more.\n";
}

/// The part of the step in which the runner-up loses most.
std::string lost_in(const StepParts& other, const StepParts& ours) {
  const Seconds compute = other.compute - ours.compute;
  const Seconds links = other.links - ours.links;
  const Seconds bubble = other.bubble - ours.bubble;
  if (compute >= std::max(links, bubble)) return "its busiest worker computes " + to_text(compute) + " longer";
  if (links >= bubble) return "it loses " + to_text(links) + " more to messages and all-reduces";
  return "it loses " + to_text(bubble) + " more to fill, drain and waiting";
}

std::string runner_up_text(const Explanation& why) {
  if (!why.runner_up) return "Runner-up: none with other stages or micro-batches is listed.\n";
  const auto& [other, parts] = *why.runner_up;
  std::string text = "Runner-up: " + plan_summary(other) + ": " + to_text(other.step) + ", " + other.why_not;
  if (parts && margin(why) > kRounding) text += "; " + lost_in(*parts, why.parts);
  return text + ".\n";
}

/// `Data parallelism: 1.03 s per step, of which messages and all-reduces are 640 ms: 385 ms if hidden`
std::string data_parallel_text(const Explanation& why) {
  if (!why.data_parallel) return "";
  const DataParallelism& found = *why.data_parallel;
  if (!found.step) return "Data parallelism: " + found.why_not + ".\n";
  std::string text = "Data parallelism: " + to_text(*found.step) + " per step";
  if (found.links > Seconds(0)) {
    text += ", of which all-reduces are " + to_text(found.links) + "; " + to_text(*found.step - found.links) +
            " if they were hidden";
  }
  return text + ".\n";
}

std::string hints_text(const Explanation& why) {
  std::string text;
  if (why.runner_up && why.spread && margin(why) < *why.spread) {
    text += "Hint: the runner-up is " + percent(std::max(0.0, margin(why))) +
            " behind, but the measured times spread by " + percent(*why.spread) +
            "; only a run can tell which is faster.\n";
  }
  if (why.synchronous && why.micro_batches < why.depth) {
    text += "Hint: " + counted(why.micro_batches, "micro-batch") + " cannot keep " + std::to_string(why.depth) +
            " stages busy; take at least " + std::to_string(why.depth) + ", or fewer stages.\n";
  }
  return text;
}

std::string changes_text(const Explanation& why) {
  std::string text = "What would help, each planned again:\n";
  std::size_t width = 0;
  for (const WhatIf& one : why.changes) width = std::max(width, one.change.size());
  for (const WhatIf& one : why.changes) {
    text += "  " + one.change + std::string(width - one.change.size(), ' ') + "  ";
    if (one.left_out) {
      text += "left out: the time limit came first\n";
      continue;
    }
    if (!one.step) {
      text += "no plan fits\n";
      continue;
    }
    text += to_text(*one.step) + ", " + change_text(*one.step / why.step - 1);
    text += one.plan == why.plan ? "\n" : ": " + one.plan + '\n';
  }
  return text;
}

}  // namespace

std::optional<double> recorded_spread(const Profile& profile, int micro_batch_size) {
  Seconds half_width{};
  Seconds total{};
  for (const LayerProfile& layer : profile.layers) {
    const LayerPoint* point = point_for(layer, micro_batch_size);
    if (point == nullptr) continue;
    for (const TimeStat* time : {&point->forward, &point->backward}) {
      total += time->median;
      if (time->samples > 0) half_width += (time->high - time->low) / 2;
    }
  }
  if (half_width == Seconds{}) return std::nullopt;
  return half_width / total;
}

Explanation explain(const Plan& plan, const Profile& profile, const Cluster& cluster,
                    const PlanRequest& request) {
  Explanation why;
  why.plan = plan_summary(plan);
  why.step = plan.predicted.step;
  why.classic = classic_windows(plan);
  if (!why.classic.empty()) why.windows = windows_of(plan);
  why.loads = loads_of(plan);
  why.bottleneck = at(std::ranges::max_element(why.loads, {}, &Load::busy) - why.loads.begin());
  why.parts = step_parts(plan);
  why.step_without_memory_limit = step_without_memory_limit(plan, profile, cluster, request);
  why.memory_left_out = !why.step_without_memory_limit && !has_time(request, cluster);
  why.limit = limit_of(why.parts, why.step_without_memory_limit.has_value());
  why.certificate = plan.certificate;
  why.runner_up = runner_up(plan, profile, cluster, request);
  why.data_parallel = data_parallelism(plan, profile, cluster, request);
  why.micro_batches = plan.training.micro_batches;
  why.spread = recorded_spread(profile, micro_batch_sizes(plan.training.mini_batch, why.micro_batches).front());
  why.depth = static_cast<int>(plan.stages.size()) / plan.schedule.chunks_per_worker;
  why.synchronous = require_schedule(plan.schedule.name).synchronous;
  why.machines = plan.machines;
  why.expected_step = plan.predicted.expected_step;
  why.messages = messages_of(cluster);
  why.all_reduce_overlap = plan.predicted.all_reduce_overlap;
  why.overlap_given = request.all_reduce_overlap.has_value();
  why.changes = what_if(plan, profile, cluster, request,
                        why.limit == Limit::memory ? MemoryLimits::yes : MemoryLimits::no);
  return why;
}

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
  if (why.data_parallel && why.data_parallel->step) {
    json["data_parallelism"] = {{"step_s", why.data_parallel->step->count()},
                                {"links_s", why.data_parallel->links.count()}};
  } else if (why.data_parallel) {
    json["data_parallelism"] = {{"why_not", why.data_parallel->why_not}};
  }
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

std::string to_text(const Explanation& why) {
  return "Chosen: " + why.plan + ": " + to_text(why.step) + " per step, the fastest of all that were " +
         "simulated.\n" + machines_text(why) + calibration_text(why) + expected_text(why) + windows_text(why) +
         loads_text(why) + limit_text(why) + messages_text(why) + overlap_text(why) +
         certainty_text(why.certificate) + runner_up_text(why) + data_parallel_text(why) + hints_text(why) +
         changes_text(why);
}

}  // namespace pp::plan
