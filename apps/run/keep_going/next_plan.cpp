#include "apps/run/keep_going/next_plan.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "apps/run/keep_going/fleet.h"
#include "apps/run/launch_command.h"
#include "libplan/answer/plan_again.h"
#include "libplan/price/predict.h"
#include "libplan/request/machine.h"
#include "libprofile/core/counted.h"
#include "libprofile/core/error.h"

namespace pp::run_tool {

namespace {

constexpr Seconds kMostPlanning(60);

int ranks_on(const plan::Plan& plan, const std::vector<Host>& hosts) {
  return static_cast<int>(place_ranks(plan, hosts).size());
}

plan::Infeasible because(const std::string& reason) {
  plan::Infeasible none;
  none.reason = reason;
  return none;
}

std::function<bool(const plan::SearchProgress&)> until(Seconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  return [=](const plan::SearchProgress&) { return std::chrono::steady_clock::now() - begin < limit; };
}

}  // namespace

PlacedPlan placed(plan::Plan plan, const std::string& file, const std::vector<Host>& hosts) {
  const int ranks = ranks_on(plan, hosts);
  return {std::move(plan), file, ranks};
}

bool fits(const PlacedPlan& plan, const std::vector<Host>& hosts) {
  try {
    return ranks_on(plan.plan, hosts) == plan.ranks;
  } catch (const Error&) {
    return false;
  }
}

std::variant<PlacedPlan, plan::Infeasible> next_plan(const Replanning& job, const PlacedPlan& current,
                                                     const std::vector<Host>& hosts, int gone) {
  const bool first_fits = job.speeds.empty() && fits(job.first, hosts);
  if (gone == 0 && !first_fits && fits(current, hosts)) return current;
  return larger_plan(job, hosts, gone);
}

std::variant<PlacedPlan, plan::Infeasible> larger_plan(const Replanning& job, const std::vector<Host>& hosts,
                                                       int gone) {
  if (gone == 0 && job.speeds.empty() && fits(job.first, hosts)) return job.first;
  if (!job.profile)
    return because(
        "the plan does not fit what is left, and without the profile that it was made from there is no "
        "other; give it with --profile FILE");
  const std::vector<int> positions = devices_left(job.first.plan, hosts, job.spare, gone);
  if (positions.empty()) return because("no device is left");
  auto found = plan_for(job, positions);
  if (auto* const none = std::get_if<plan::Infeasible>(&found)) return *none;
  PlacedPlan next = placed(std::get<plan::Plan>(std::move(found)), "", hosts);
  next.devices = positions;
  return next;
}

std::variant<plan::Plan, plan::Infeasible> plan_for(const Replanning& job, const std::vector<int>& positions) {
  const plan::Plan& first = job.first.plan;
  Cluster machine = plan::cluster_of(first);
  for (std::size_t d = 0; d < job.speeds.size(); ++d) machine.devices[d].speed = job.speeds[d];
  plan::PlanRequest request = plan::request_of(first);
  request.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  request.observer = until(kMostPlanning);
  return plan::plan_again(first, *job.profile, plan::some_devices(machine, positions), request);
}

std::string plan_line(const plan::Plan& plan) {
  return plan.schedule.name + ", layers per stage " + plan::stages_text(plan) + ", replicas " +
         plan::replicas_text(plan) + ", " + counted(plan.training.mini_batch, "sample") + " in " +
         counted(plan.training.micro_batches, "micro-batch");
}

std::string promise_line(const plan::Plan& plan, const plan::Plan& old, Seconds before) {
  Bytes peak;
  for (const plan::WorkerPrediction& worker : plan.predicted.workers) peak = std::max(peak, worker.memory.peak);
  std::string text = "it promises " + pp::to_text(plan.predicted.step) + " per step";
  if (before > Seconds()) text += " in place of " + pp::to_text(before);
  text += " and at most " + pp::to_text(peak) + " on a device; ";
  const auto alone = [](const plan::Stage& stage) { return stage.workers.size() == 1; };
  const bool in_order = plan.schedule == old.schedule && std::ranges::all_of(plan.stages, alone) &&
                        std::ranges::all_of(old.stages, alone);
  if (plan.training.micro_batches != old.training.micro_batches || !in_order)
    return text + "the weights are equal to rounding";
  return text + "as many micro-batches as before, so the weights keep their bits";
}

}  // namespace pp::run_tool
