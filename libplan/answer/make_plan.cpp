#include "libplan/answer/make_plan.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "libplan/answer/explain_infeasible.h"
#include "libplan/price/corrected.h"
#include "libplan/price/expected_step.h"
#include "libplan/request/request.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"

namespace pp::plan {

namespace {

template <class Found>
std::variant<Found, Infeasible> or_why_not(std::variant<Found, NoPlan> found, const Profile& profile,
                                           const Cluster& cluster, const PlanRequest& asked) {
  const auto* none = std::get_if<NoPlan>(&found);
  if (none == nullptr) return std::get<Found>(std::move(found));
  const PlanRequest request = with_tied_weights(profile, cluster, asked);
  if (!request.even_nodes) return explain_infeasible(profile, cluster, request, *none);
  PlanRequest uneven = request;  // the searches that say what is short take any number of devices
  uneven.even_nodes = false;
  const std::variant<Plan, NoPlan> other = find_plan(profile, cluster, uneven);
  if (std::holds_alternative<NoPlan>(other)) return explain_infeasible(profile, cluster, uneven, *none);
  Infeasible only_uneven;
  const std::vector<Stage>& stages = std::get<Plan>(other).stages;
  if (stages.size() > 1 &&
      std::ranges::adjacent_find(stages, std::ranges::not_equal_to(), &Stage::workers) == stages.end()) {
    only_uneven.reason = "a pipeline of one worker has one stage, as --for " + request.trainer +
                         " starts it, and " + request.schedule + " needs several; plan with 1f1b";
  } else {
    only_uneven.reason = "no plan uses equally many devices of each node, as --for " + request.trainer +
                         " starts them; plan with a mini-batch that has more divisors, or with more memory";
  }
  return only_uneven;
}

/// What the profile is in the eyes of a trainer that recomputes all of its blocks, and what is left to ask
/// then.
struct Checkpointed {
  Profile profile;
  PlanRequest request;
};

Checkpointed checkpointed(const Profile& profile, PlanRequest request) {
  request.recompute = RecomputeMode::never;
  return {with_checkpoints(profile), std::move(request)};
}

RecomputeExtent extent_of(const Profile& profile, const PlanRequest& request) {
  if (request.recompute_extent != RecomputeExtent::any || !profile.trainer) return request.recompute_extent;
  return profile.trainer->recompute;
}

/// Weights that a group shards are of one stage: every micro-batch of each of several would gather its stage's
/// again, which is why trainers do not.
PlanRequest of_shards(const Profile& profile, PlanRequest request) {
  if (profile.shard_group.degree == 1) return request;
  if (const int stages = requested_stages(request); stages > 1)
    throw Error(
        ErrorKind::usage,
        "stages = " + std::to_string(stages) +
            ": of a profile with --shard-degree there is 1, for each of "
            "several would gather its weights for every micro-batch; plan a profile without it with --shard "
            "optimizer, or 1 stage");
  request.stages = 1;
  return request;
}

Plan& plan_of(Plan& plan) { return plan; }
Plan& plan_of(RankedPlans& plans) { return plans.best; }

/// The faster one; no plan of either search is below its bound.
template <class Found>
Found faster_of(Found some, Found whole) {
  Certificate &one = plan_of(some).certificate, &other = plan_of(whole).certificate;
  const bool first = plan_of(some).predicted.step <= plan_of(whole).predicted.step;
  Certificate& better = first ? one : other;
  better.lower_bound = std::min(one.lower_bound, other.lower_bound);
  if (better.lower_bound.count() > 0) better.gap = better.objective / better.lower_bound - 1;
  return std::move(first ? some : whole);
}

/// By `find`, find_plan() or find_plans(). A trainer recomputes blocks within their backward, as a profile with
/// checkpoints has it, and not by the R of pp-run: `always` plans such a profile, and of `auto` that is the
/// plan where the others need more memory, or take longer. A model without blocks has no such plan.
template <class Find>
auto found_by(const Find& find, const Profile& profile, const Cluster& cluster, const PlanRequest& asked_for)
    -> decltype(or_why_not(find(profile, cluster, asked_for), profile, cluster, asked_for)) {
  const PlanRequest request = of_shards(profile, asked_for);
  const auto answer = [&](const Profile& of, const PlanRequest& asked) {
    return or_why_not(find(of, cluster, asked), of, cluster, asked);
  };
  const RecomputeExtent extent = extent_of(profile, request);
  const bool asks = request.recompute == RecomputeMode::always || request.recompute == RecomputeMode::automatic;
  if (extent == RecomputeExtent::any || !asks) return answer(profile, request);
  if (request.recompute == RecomputeMode::always) {
    const Checkpointed all = checkpointed(profile, request);
    return answer(all.profile, all.request);
  }
  PlanRequest less = request;
  if (extent == RecomputeExtent::uniform) less.recompute = RecomputeMode::never;
  auto some = find(profile, cluster, less);
  if (some.index() == 0 && extent == RecomputeExtent::first_blocks) return std::get<0>(std::move(some));
  if (blocks_of(profile.model).empty()) return or_why_not(std::move(some), profile, cluster, request);
  const Checkpointed all = checkpointed(profile, request);
  auto whole = find(all.profile, cluster, all.request);
  if (whole.index() != 0) return or_why_not(std::move(some), profile, cluster, request);
  if (some.index() != 0) return std::get<0>(std::move(whole));
  return faster_of(std::get<0>(std::move(some)), std::get<0>(std::move(whole)));
}

}  // namespace

std::variant<Plan, Infeasible> make_plan(const Profile& profile, const Cluster& cluster,
                                         const PlanRequest& request) {
  const auto find = [](const auto&... of) { return find_plan(of...); };
  return found_by(find, profile, cluster, request);
}

std::variant<RankedPlans, Infeasible> make_plans(const Profile& profile, const Cluster& cluster,
                                                 const PlanRequest& request) {
  const auto find = [](const auto&... of) { return find_plans(of...); };
  return found_by(find, profile, cluster, request);
}

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
  require_whole_profile(before, profile);
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
