#include "librun/report/page_timelines.h"

#include <cstdint>
#include <variant>

namespace pp::run {
namespace {

/// What a worker holds all the time.
std::vector<plan::MemoryParts> always_held(const RunReport& report) {
  std::vector<plan::MemoryParts> parts(report.workers.size());
  for (const WorkerReport& worker : report.workers) {
    plan::MemoryParts& held = parts[index(worker.id)];
    held.weights = worker.weights;
    held.gradients = worker.gradients;
    held.optimizer = worker.optimizer;
    held.versions = worker.versions;
  }
  return parts;
}

std::string steps_text(const LastSteps& last) {
  if (last.steps == 1) return "step " + std::to_string(last.first_step);
  return "steps " + std::to_string(last.first_step) + " to " + std::to_string(last.first_step + last.steps - 1);
}

/// Samples of a step that is not cut short.
std::int64_t whole_step(const RunReport& report) {
  const auto accumulate = report.settings.find("accumulate");
  const bool several =
      accumulate != report.settings.end() && std::holds_alternative<std::int64_t>(accumulate->second);
  return report.plan.training.mini_batch * (several ? std::get<std::int64_t>(accumulate->second) : 1);
}

/// ` (step 58: 5 of 64 samples)`
std::string partial_text(const RunReport& report) {
  const LastSteps& last = report.last_steps;
  const std::int64_t whole = whole_step(report);
  std::string text;
  for (std::size_t i = 0; i < last.samples.size(); ++i) {
    if (last.samples[i] >= whole) continue;
    text += (text.empty() ? " (step " : ", step ") +
            std::to_string(last.first_step + static_cast<std::int64_t>(i)) + ": " +
            std::to_string(last.samples[i]) + " of " + std::to_string(whole) + " samples";
  }
  return text.empty() ? text : text + ")";
}

}  // namespace

std::vector<PageTimeline> page_timelines(const RunReport& report) {
  const LastSteps& last = report.last_steps;
  if (last.steps == 0 || last.ops.empty()) return {};
  std::vector<PageTimeline> timelines;
  if (report.plan.predicted.stages.size() == report.plan.stages.size()) {
    timelines.push_back({"predicted", predicted_timeline(report.plan, last.steps), report.plan.predicted.step,
                         report.plan.predicted.bubble_fraction});
  }
  timelines.push_back({"measured, " + steps_text(last) + partial_text(report),
                       measured_timeline(last, always_held(report)), report.step, report.bubble_fraction});
  for (PageTimeline& timeline : timelines) {  // nothing is said of what comes later
    for (plan::MemoryCurve& curve : timeline.drawn.memory)
      curve.push_back({timeline.drawn.result.makespan, {}});
  }
  return timelines;
}

}  // namespace pp::run
