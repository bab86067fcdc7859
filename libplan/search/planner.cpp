#include "libplan/search/planner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "libplan/plan/programs.h"
#include "libplan/request/request.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/search/best_first.h"
#include "libplan/search/certificate.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

std::string joined(const std::vector<int>& numbers, const char* separator) {
  std::string text;
  for (const int n : numbers) text.append(text.empty() ? "" : separator).append(std::to_string(n));
  return text;
}

std::string percent(double share) {
  if (!std::isfinite(share)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

/// Workers of each stage, side by side included.
std::string workers_text(const Finalist& finalist) {
  if (!finalist.placed) return replicas_text(finalist.partition);
  std::vector<int> workers;
  for (const auto& stage : finalist.placed->stage_workers)
    workers.push_back(static_cast<int>(stage.size()) * finalist.pipelines);
  return joined(workers, "-");
}

/// What made `other` lose, by the first rank that differs.
std::string why_not(const Finalist& other, const Finalist& best) {
  if (other.rounded_step() > best.rounded_step()) {
    return percent(other.prediction.step / best.prediction.step - 1) + " slower";
  }
  if (other.rounded_step() < best.rounded_step()) {
    return percent(1 - other.prediction.step / best.prediction.step) +
           " faster, too little for wider windows (" + joined(other.windows, ",") + ")";
  }
  const int more_devices = other.workers() - best.workers();
  if (more_devices > 0) return "as fast, needs " + std::to_string(more_devices) + " more devices";
  if (other.partition.size() > best.partition.size()) return "as fast, has more stages";
  if (recomputed_layers(other.again, other.assignment) > recomputed_layers(best.again, best.assignment))
    return "as fast, runs more layers again";
  if (other.peak() > best.peak())
    return "as fast, needs " + pp::to_text(Bytes(other.peak() - best.peak())) + " more memory";
  return "as fast and as small; first in byte order wins";
}

/// What a reader of the list can tell finalists apart by; some differ only in their windows, their devices or
/// the order of layers.
auto features(const Finalist& finalist) {
  return std::tuple(finalist.schedule->name, stages_text(finalist.partition), workers_text(finalist),
                    finalist.micro_batches, recompute_text(finalist.again), finalist.shared());
}

/// Under two schedules, as a single stage is the same under many.
bool is_same_training(const Finalist& a, const Finalist& b) {
  const Assignment &one = a.assignment, &other = b.assignment;
  return a.shared() == b.shared() &&
         std::tie(one.stage_layers, one.stage_workers, one.programs, one.recompute, one.policy,
                  a.micro_batches) == std::tie(other.stage_layers, other.stage_workers, other.programs,
                                               other.recompute, other.policy, b.micro_batches);
}

/// The best of the others, each once.
std::vector<const Finalist*> runners_up(const SearchOutcome& outcome, int top) {
  const Finalist& best = outcome.ranked.front();
  std::vector<const Finalist*> list;
  std::set seen{features(best)};
  for (std::size_t i = 1; i < outcome.ranked.size() && std::ssize(list) < top; ++i) {
    const Finalist& other = outcome.ranked[i];
    if (!seen.insert(features(other)).second || is_same_training(other, best)) continue;
    if (std::ranges::none_of(list, [&](const Finalist* listed) { return is_same_training(other, *listed); }))
      list.push_back(&other);
  }
  return list;
}

Alternative alternative(const Finalist& other, const Finalist& best) {
  return {std::string(other.schedule->name),
          stages_text(other.partition),
          workers_text(other),
          other.micro_batches,
          other.prediction.step,
          Bytes(other.peak()),
          recompute_text(other.again),
          why_not(other, best)};
}

/// Ranks are processes: one per node, in the order of the devices.
std::map<std::string, int> ranks_of(const Cluster& cluster) {
  std::map<std::string, int> ranks;
  for (const Device& device : cluster.devices) ranks.try_emplace(device.node, static_cast<int>(ranks.size()));
  return ranks;
}

void add_stages(Plan& plan, const Finalist& best, const Cluster& cluster) {
  const std::map<std::string, int> ranks = ranks_of(cluster);
  for (std::size_t s = 0; s < best.partition.size(); ++s) {
    Stage& stage = plan.stages.emplace_back();
    for (const int layer : best.assignment.stage_layers[s]) {
      stage.layers.push_back(plan.model.layers[at(layer)].name);
    }
    for (const int worker : best.assignment.stage_workers[s]) stage.workers.push_back(WorkerId{worker});
    if (best.assignment.recompute.empty()) continue;
    for (const int layer : best.assignment.recompute[s]) {
      stage.recompute.push_back(plan.model.layers[at(layer)].name);
    }
  }
  for (std::size_t w = 0; w < best.assignment.worker_devices.size(); ++w) {
    const Device& device = cluster.devices[at(best.assignment.worker_devices[w])];
    plan.workers.push_back(
        {WorkerId{static_cast<int>(w)}, device.id, ranks.at(device.node), best.assignment.programs[w]});
  }
}

/// Options that shaped the plan, and what the search found; nothing of host, path or time.
Context plan_context(const Profile& profile, const PlanRequest& request, const Finalist& best) {
  Context context{{"tool", "pp-plan"}, {"version", PP_VERSION}};
  if (profile.mode == ProfileMode::estimated) context["times"] = "estimated";
  for (const char* const key : {"checkpoint", "sequence_parallel"})  // what its estimate assumes of the trainer
    if (const auto said = profile.context.find(key); said != profile.context.end()) context.insert(*said);
  for (const Profile& other : profile.others)
    context["profile_of"] +=
        (context["profile_of"].empty() ? "" : ",") + other.device.name + "=" + profile_hash(other);
  add_options(context, request);
  if (!best.windows.empty()) context["window"] = joined(best.windows, ",");
  if (best.schedule->rules == RuleSet::swapped) context["prefetch"] = best.prefetch ? "true" : "false";
  return context;
}

/// Stages of a worker; of two copies of the model (chimera) it has one each, and swapped weights are nobody's.
int chunks_of(const Finalist& best) {
  if (!best.placed || best.schedule->chunks == Chunks::one) return 1;
  const bool swapped = best.schedule->rules == RuleSet::swapped;
  const auto copies = swapped ? std::size_t{1} : best.placed->stage_workers.front().size();
  return static_cast<int>(best.partition.size() * copies / best.placed->workers.size());
}

/// The limit is what weights are swapped for, so the plan says it, and the run keeps to it.
void limit_devices(Plan& plan, const PlanRequest& request) {
  if (!request.memory_limit) return;
  for (Device& device : plan.devices) {
    const bool less = device.memory.value == 0 || *request.memory_limit < device.memory;
    if (less) device.memory = *request.memory_limit;
  }
}

/// A device's, on average; nothing where it is not known of all.
std::optional<double> mean_peak(const Profile& profile, const Cluster& cluster) {
  if (profile.others.empty()) return profile.device.peak_flops_per_s;
  double sum = 0;
  for (const Device& device : cluster.devices) {
    const std::optional<double> peak = profile.of_kind(device.profile).device.peak_flops_per_s;
    if (!peak) return std::nullopt;
    sum += *peak;
  }
  return sum / static_cast<double>(cluster.devices.size());
}

/// What all plans of one request have in common.
Plan frame(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  Plan plan;
  plan.model = profile.model;
  plan.profile_hash = profile_hash(profile);
  plan.cluster_hash = cluster_hash(cluster);
  plan.training = {.mini_batch = request.mini_batch,
                   .dtype = profile.dtype,
                   .memory_format = profile.memory_format,
                   .autocast = profile.autocast,
                   .optimizer = request.optimizer,
                   .precision = profile.autocast ? Precision::autocast : request.precision,
                   .kernels = effective(profile.kernels),
                   .products = profile.products};
  plan.devices = cluster.devices;
  plan.levels = cluster.levels;
  plan.tensor_degree = profile.tensor_degree;
  plan.context_degree = profile.context_parallel.degree;
  plan.expert_degree = profile.expert_parallel.degree;
  plan.shard_group = profile.shard_group;
  plan.peak_flops_per_s = mean_peak(profile, cluster);
  return plan;
}

/// The finalist as a plan, without certificate and alternatives.
Plan assemble(Plan plan, const Finalist& finalist, const Profile& profile, const Cluster& cluster,
              const PlanRequest& request) {
  plan.context = plan_context(profile, request, finalist);
  plan.training.micro_batches = finalist.micro_batches;
  plan.training.shard = finalist.shared();
  plan.schedule = {.name = std::string(finalist.schedule->name),
                   .weight_policy = policy_of(*finalist.schedule, request),
                   .recompute = policy_of(finalist.again),
                   .chunks_per_worker = chunks_of(finalist)};
  add_stages(plan, finalist, cluster);
  const bool swapped = finalist.schedule->rules == RuleSet::swapped;
  if (swapped) limit_devices(plan, request);
  const bool own = (finalist.schedule->source == ProgramSource::file || swapped) &&
                   !recompute_text(plan).empty();  // R of its programs
  if (own) plan.schedule.recompute = RecomputePolicy::per_stage;
  plan.tied = tied_parameters(resolve(plan.model), plan.stages);
  plan.predicted = finalist.prediction;
  return plan;
}

/// A plan that check_plan() refuses would be of no use to anybody.
Plan checked(Plan plan) {
  try {
    check_plan(plan);
  } catch (const Error& error) {
    throw Error(ErrorKind::internal, std::string("the planner made a plan that is not valid: ") + error.what());
  }
  return plan;
}

[[noreturn]] void refuse_endless(std::string_view schedule) {
  if (require_schedule(schedule).rules == RuleSet::clocked) {
    throw Error(
        ErrorKind::usage,
        "schedule " + std::string(schedule) +
            " hands frames to the next stage only, and every plan that was found has a stage that reads "
            "from one further in front; use fewer stages, or leave the cuts open");
  }
  const bool stream = !require_schedule(schedule).synchronous;
  throw Error(ErrorKind::usage,
              "schedule " + std::string(schedule) +
                  (stream ? ": the streams of every plan that was found repeat only after more than "
                          : ": a step of every plan that was found has more than ") +
                  std::to_string(kOperationLimit) + " operations, the limit; use fewer stages or " +
                  (stream ? "--replicas with a small common multiple" : "larger micro-batches"));
}

/// Copies are worth having where no plan without them is as fast; the bound is over both.
void prefer_one_stage(SearchOutcome& outcome, const Profile& profile, const Cluster& cluster,
                      const PlanRequest& request) {
  PlanRequest in_one = request;
  in_one.tied = TiedWeights::stage;
  SearchOutcome together = search_plans(profile, cluster, planned_graph(profile, in_one), request);
  if (together.ranked.empty()) return;
  if (!outcome.ranked.empty() && outcome.ranked.front().ranked_step() < together.ranked.front().ranked_step())
    return;
  together.bound = outcome.bound;
  outcome = std::move(together);
}

RankedPlans ranked_plans(const SearchOutcome& outcome, const Profile& profile, const Cluster& cluster,
                         const PlanRequest& request, Others others) {
  const Finalist& best = outcome.ranked.front();
  const Plan common = frame(profile, cluster, request);
  RankedPlans plans;
  plans.best = assemble(common, best, profile, cluster, request);
  plans.best.certificate = certify(outcome);
  for (const Finalist* other : runners_up(outcome, request.top)) {
    plans.best.alternatives.push_back(alternative(*other, best));
    if (others == Others::in_full)
      plans.others.push_back(checked(assemble(common, *other, profile, cluster, request)));
  }
  plans.best = checked(std::move(plans.best));
  return plans;
}

}  // namespace

void refuse_unfinished() {
  throw Error(ErrorKind::run,
              "the time limit ended the search before any plan was found; give it longer with --time-limit");
}

std::variant<RankedPlans, NoPlan> find_plans(const Profile& profile, const Cluster& cluster,
                                             const PlanRequest& asked, Others others) {
  const PlanRequest request = with_tied_weights(profile, cluster, asked);
  const PlanGraph graph = planned_graph(profile, request);
  check_request(profile, cluster, graph, request);
  PlanRequest known = request;  // smaller machines have fewer levels
  known.all_reduce_overlap = all_reduce_overlap(cluster, request);
  SearchOutcome outcome = search_plans(profile, cluster, graph, known);
  if (request.tied == TiedWeights::copies) prefer_one_stage(outcome, profile, cluster, known);
  PlanRequest said = request;
  if (request.tied == TiedWeights::stage) said.tied = asked.tied;
  if (!outcome.ranked.empty()) return ranked_plans(outcome, profile, cluster, said, others);
  if (outcome.cut_short) refuse_unfinished();
  if (!outcome.endless.empty()) refuse_endless(outcome.endless);
  return NoPlan{outcome.short_by, outcome.short_schedule};
}

std::variant<Plan, NoPlan> find_plan(const Profile& profile, const Cluster& cluster,
                                     const PlanRequest& request) {
  auto found = find_plans(profile, cluster, request, Others::listed);
  if (const auto* none = std::get_if<NoPlan>(&found)) return *none;
  return std::get<RankedPlans>(std::move(found)).best;
}

}  // namespace pp::plan
