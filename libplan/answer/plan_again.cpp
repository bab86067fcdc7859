#include "libplan/answer/plan_again.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libplan/answer/make_plan.h"
#include "libplan/price/corrected.h"
#include "libplan/price/expected_step.h"
#include "libplan/schedule/schedule.h"

namespace pp::plan {

namespace {

const std::string* find(const Context& context, const std::string& key) {
  const auto found = context.find(key);
  return found == context.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> number_in(const Context& context, const std::string& key) {
  const std::string* const text = find(context, key);
  std::int64_t value = 0;
  if (text == nullptr) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error == std::errc() && end == text->data() + text->size()) return value;
  return std::nullopt;
}

/// Where the context names a value of the enum.
template <class E>
std::optional<E> named_in(const Context& context, const std::string& key) {
  const std::string* const text = find(context, key);
  return text ? find_enum<E>(*text) : std::nullopt;
}

bool is_set(const Context& context, const std::string& key) {
  const std::string* const text = find(context, key);
  return text != nullptr && *text == "true";
}

/// How a search may cut and place the model.
void add_freedom(PlanRequest& request, const Context& context) {
  if (const auto placement = named_in<Placement>(context, "placement")) request.placement = *placement;
  if (const auto recompute = named_in<RecomputeMode>(context, "recompute")) request.recompute = *recompute;
  if (const auto shard = named_in<ShardChoice>(context, "shard")) request.shard = *shard;
  if (const auto tied = named_in<TiedWeights>(context, "tied")) request.tied = *tied;
  request.window = named_in<WindowRule>(context, "window");
  if (const std::string* const cut_at = find(context, "cut_at"))
    request.cut_at = PlanRequest::CutAt{static_cast<int>(number_in(context, "cut_at").value_or(0))};
  if (const auto most = number_in(context, "max_stages")) request.max_stages = static_cast<int>(*most);
}

}  // namespace

PlanRequest request_of(const Plan& plan) {
  PlanRequest request;
  request.mini_batch = plan.training.mini_batch;
  request.micro_batches = plan.training.micro_batches;
  request.optimizer = plan.training.optimizer;
  request.precision = plan.training.precision;
  request.weight_policy = plan.schedule.weight_policy;
  const bool own = plan.schedule.name == schedule_of_files().name;
  if (const std::string* const asked = find(plan.context, "schedule"); asked != nullptr && !own)
    request.schedule = *asked;
  request.allow_async = plan.schedule.weight_policy != WeightPolicy::flush;
  if (const auto limit = number_in(plan.context, "memory_limit_bytes")) request.memory_limit = Bytes(*limit);
  const auto alone = [](const Stage& stage) { return stage.workers.size() == 1; };
  if (std::ranges::all_of(plan.stages, alone)) request.max_replicas = 1;
  add_freedom(request, plan.context);
  request.extrapolate = is_set(plan.context, "extrapolate");
  request.linear_batch = is_set(plan.context, "linear_batch");
  request.force_units = is_set(plan.context, "force_units");
  if (plan.predicted.swap.bandwidth.value > 0) {
    request.swap_bandwidth = plan.predicted.swap.bandwidth;
    request.swap_overlap = plan.predicted.swap.overlap;
  }
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
