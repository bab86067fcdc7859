#include "libplan/answer/plan_again.h"

#include <algorithm>
#include <initializer_list>

#include "libplan/answer/make_plan.h"
#include "libplan/price/corrected.h"
#include "libplan/price/expected_step.h"
#include "libplan/request/request_context.h"
#include "libplan/schedule/schedule.h"

namespace pp::plan {

PlanRequest request_of(const Plan& plan) {
  PlanRequest request;
  request.mini_batch = plan.training.mini_batch;
  request.optimizer = plan.training.optimizer;
  request.precision = plan.training.precision;
  request.weight_policy = plan.schedule.weight_policy;
  request.allow_async = plan.schedule.weight_policy != WeightPolicy::flush;
  if (plan.predicted.swap.bandwidth.value > 0) {
    request.swap_bandwidth = plan.predicted.swap.bandwidth;
    request.swap_overlap = plan.predicted.swap.overlap;
  }
  read_options(request, plan.context);
  const auto alone = [](const Stage& stage) { return stage.workers.size() == 1; };
  if (std::ranges::all_of(plan.stages, alone)) request.max_replicas = 1;
  if (plan.schedule.name == schedule_of_files().name) request.schedule = PlanRequest{}.schedule;
  if (!request.micro_batch_size) request.micro_batches = plan.training.micro_batches;
  return request;
}

std::variant<Plan, Infeasible> plan_again(const Plan& before, const Profile& profile, const Cluster& left,
                                          const PlanRequest& request) {
  require_profile(before, profile);
  const Profile times = before.calibration ? corrected(profile, *before.calibration) : profile;
  const auto complete = [&](Plan& plan, const PlanRequest& answered) {
    add_expected_step(plan, times, answered);
    plan.profile_hash = before.profile_hash;
    plan.calibration = before.calibration;
  };
  PlanRequest same = request, any = request;
  if (before.schedule.name != schedule_of_files().name) same.schedule = before.schedule.name;
  any.micro_batches.reset();
  any.micro_batch_size.reset();
  for (const PlanRequest* const one : std::initializer_list<const PlanRequest*>{&same, &request}) {
    try {
      std::variant<Plan, Infeasible> found = make_plan(times, left, *one);
      if (Plan* const plan = std::get_if<Plan>(&found)) {
        complete(*plan, *one);
        return found;
      }
    } catch (const Error& error) {  // schedules that want more devices, and the like
      if (error.kind() != ErrorKind::usage) throw;
    }
  }
  std::variant<Plan, Infeasible> found = make_plan(times, left, any);
  if (Plan* const plan = std::get_if<Plan>(&found)) complete(*plan, any);
  return found;
}

}  // namespace pp::plan
