// Whatever is asked for: the answer keeps to it, is a valid document, and is no slower than a narrower
// request's.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "libplan/answer/make_plan.h"
#include "libplan/request/request.h"
#include "libplan/request/shapes.h"
#include "libprofile/core/error.h"
#include "tests/libplan/search/cross_checks.h"
#include "tests/libplan/search/drawn_problems.h"
#include "tests/libplan/search/profiles.h"

namespace pp::plan::test {
namespace {

bool one_in(Random& random, int n) { return random.integer(1, n) == 1; }

template <class T, std::size_t N>
T one_of(Random& random, const std::array<T, N>& values) {
  return values[at(random.integer(0, static_cast<int>(N) - 1))];
}

Cluster draw_machine(Random& random) {
  Cluster cluster = make_cluster(random.integer(1, 6));
  if (one_in(random, 2)) {
    const std::array levels{LevelSpec{random.integer(1, 3), BytesPerSecond(4e9)},
                            LevelSpec{random.integer(2, 3), BytesPerSecond(5e8)}};
    cluster = nested_cluster(levels, DeviceKind::cuda, Seconds(1e-4), Bytes(random.integer(10, 90) * kMb));
  }
  if (one_in(random, 3)) cluster.devices.front().speed = 0.5;
  return cluster;
}

PlanRequest draw_request(Random& random, int layers, int devices) {
  PlanRequest request;
  request.mini_batch = one_of(random, std::array{1, 2, 4, 6, 8, 12});
  if (one_in(random, 2)) request.micro_batches = random.integer(1, request.mini_batch);
  if (!one_in(random, 3)) {
    const auto& table = schedule_table();
    request.schedule = table[at(random.integer(0, static_cast<int>(std::ssize(table)) - 1))].name;
    if (one_in(random, 4)) request.schedule += ",1f1b";
  }
  request.allow_async = one_in(random, 3);
  if (one_in(random, 5)) request.window = one_of(random, std::array{WindowRule::win, WindowRule::wide});
  if (one_in(random, 4)) request.chunks_per_worker = random.integer(1, 3);
  if (one_in(random, 4)) request.stages = random.integer(1, std::min(layers, devices));
  if (one_in(random, 6)) request.max_stages = random.integer(1, layers);
  if (one_in(random, 8) && layers > 1) request.cuts = {random.integer(1, layers - 1)};
  if (one_in(random, 3)) request.cut_at = PlanRequest::CutAt{random.integer(0, 2)};
  if (one_in(random, 5)) request.max_replicas = random.integer(1, devices);
  request.even_replicas = one_in(random, 4);
  request.even_nodes = one_in(random, 4);
  if (one_in(random, 4)) request.placement = Placement::packed;
  if (one_in(random, 2)) request.memory_limit = Bytes(random.integer(4, 60) * kMb);
  if (one_in(random, 4)) request.context_bytes = Bytes(kMb);
  request.recompute = one_of(random, std::array{RecomputeMode::never, RecomputeMode::except_last,
                                                RecomputeMode::always, RecomputeMode::automatic});
  request.recompute_extent =
      one_of(random, std::array{RecomputeExtent::any, RecomputeExtent::uniform, RecomputeExtent::first_blocks});
  if (one_in(random, 2)) request.optimizer = OptimizerName::adam;
  if (one_in(random, 4)) request.precision = Precision::mixed;
  request.shard = one_of(random, std::array{ShardChoice::none, ShardChoice::optimizer, ShardChoice::automatic});
  if (one_in(random, 3)) request.all_reduce_overlap = 0.5 * random.integer(0, 2);
  request.swap_bandwidth = BytesPerSecond(1e9);
  request.top = random.integer(0, 5);
  return request;
}

/// One option that is open, at one of its values.
PlanRequest narrower(Random& random, const Profile& profile, PlanRequest request, const Plan& plan) {
  switch (random.integer(0, 5)) {
    case 0:
      if (request.schedule == "auto") {
        const auto rows = planned_schedules(profile, request);
        request.schedule = rows[at(random.integer(0, static_cast<int>(std::ssize(rows)) - 1))]->name;
      }
      break;
    case 1:
      // Of swapped weights plans that a move would make the fastest are left out (Shortlist::far()).
      if (!request.stages && !request.max_stages && !request.schedule.starts_with("harmony"))
        request.stages = random.integer(1, 4);
      break;
    case 2:
      if (!request.micro_batches && !request.micro_batch_size)
        request.micro_batch_size = one_of(random, std::array{1, 2, 3});
      break;
    case 3:
      if (request.recompute == RecomputeMode::automatic) request.recompute = RecomputeMode::never;
      break;
    case 4:
      if (request.shard == ShardChoice::automatic)
        request.shard = one_in(random, 2) ? ShardChoice::none : ShardChoice::optimizer;
      break;
    default: request.schedule = plan.schedule.name;
  }
  return request;
}

std::string described(const PlanRequest& request, const Profile& profile, const Cluster& cluster) {
  Context context;
  add_options(context, request);
  std::ostringstream text;
  text << " (" << profile.layers.size() << " layers, " << cluster.devices.size() << " devices, "
       << request.mini_batch << " samples in " << request.micro_batches.value_or(0) << ", " << request.schedule;
  for (const auto& [name, value] : context) text << ", " << name << ' ' << value;
  text << ')';
  return text.str();
}

/// `66.5 ms (1f1b 4|3 2-1, M 8)`: stages and their replicas.
std::string summary(const Plan& plan) {
  std::ostringstream text;
  text << 1e3 * plan.predicted.step.count() << " ms (" << plan.schedule.name;
  for (const Stage& stage : plan.stages)
    text << (&stage == &plan.stages.front() ? ' ' : '|') << stage.layers.size();
  for (const Stage& stage : plan.stages)
    text << (&stage == &plan.stages.front() ? ' ' : '-') << stage.workers.size();
  text << ", M " << plan.training.micro_batches << ')';
  return text.str();
}

/// What of the request the plan does not keep to; empty: nothing.
std::string broken(const Plan& plan, const PlanRequest& request, const PlanGraph& graph) {
  const ScheduleRow& row = require_schedule(plan.schedule.name);
  if (request.micro_batches && plan.training.micro_batches != *request.micro_batches) return "micro-batches";
  if (request.schedule != "auto" &&
      ("," + request.schedule + ",").find("," + plan.schedule.name + ",") == std::string::npos)
    return "schedule";
  if (!row.synchronous && request.schedule == "auto" && !request.allow_async) return "asynchronous";
  for (const Stage& stage : plan.stages) {
    if (request.max_replicas > 0 && !places_stages(row) && std::ssize(stage.workers) > request.max_replicas)
      return "replicas";
  }
  std::map<std::string, std::size_t> stage_of;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const std::string& layer : plan.stages[s].layers) stage_of[layer] = s;
  for (const std::vector<int>& block : graph.blocks)
    for (const int layer : block)
      if (stage_of.at(plan.model.layers[at(layer)].name) !=
          stage_of.at(plan.model.layers[at(block.front())].name))
        return "blocks";
  if (!request.memory_limit) return {};
  for (std::size_t w = 0; w < plan.workers.size(); ++w)
    if (plan.predicted.workers[w].memory.peak + request.context_bytes > *request.memory_limit)
      return "memory limit";
  return {};
}

}  // namespace

std::string check_request(Random& random) {
  const int layers = random.integer(1, 7);
  Profile profile = draw_profile(random, layers, layers > 2 && one_in(random, 3));
  if (one_in(random, 2)) profile = in_blocks(profile, random.integer(1, 3));
  const Cluster cluster = draw_machine(random);
  const PlanRequest request = draw_request(random, layers, static_cast<int>(cluster.devices.size()));
  std::optional<Plan> plan;  // the last one
  const auto wrong_with = [&](const PlanRequest& asked) -> std::string {
    plan.reset();
    try {
      auto result = make_plans(profile, cluster, asked);
      if (std::holds_alternative<Infeasible>(result)) return {};
      plan = std::get<RankedPlans>(std::move(result)).best;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::internal ? error.what() : "";  // else refused
    }
    if (plan_from_json(to_json(*plan)) != *plan) return "another plan comes back from its document";
    if (plan->certificate.lower_bound > plan->predicted.step * (1 + 1e-9)) return "a bound above the step";
    const std::string what = broken(*plan, asked, planned_graph(profile, asked));
    return what.empty() ? what : "not kept to: " + what;
  };
  std::string wrong = wrong_with(request);
  if (!wrong.empty()) return wrong + described(request, profile, cluster);
  if (!plan) return {};
  const Plan open = *plan;
  const PlanRequest narrow = narrower(random, profile, request, open);
  wrong = wrong_with(narrow);
  constexpr double kLess = 0.05;
  if (wrong.empty() && plan && plan->predicted.step < open.predicted.step * (1 - kLess))
    wrong = "a step of " + summary(open) + ", with less left open " + summary(*plan) +
            described(request, profile, cluster);
  return wrong.empty() ? wrong : wrong + described(narrow, profile, cluster);
}

}  // namespace pp::plan::test
