#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "libplan/cost/constants.h"
#include "libplan/report/explain.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

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

std::string to_text(const Explanation& why) {
  return "Chosen: " + why.plan + ": " + to_text(why.step) + " per step, the fastest of all that were " +
         "simulated.\n" + machines_text(why) + calibration_text(why) + expected_text(why) + windows_text(why) +
         loads_text(why) + limit_text(why) + messages_text(why) + overlap_text(why) +
         certainty_text(why.certificate) + runner_up_text(why) + hints_text(why) + changes_text(why);
}

}  // namespace pp::plan
