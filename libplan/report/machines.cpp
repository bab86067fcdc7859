#include "libplan/report/machines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>
#include <tuple>
#include <vector>

#include "libplan/plan/programs.h"
#include "libplan/report/what_if.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {

namespace {

using pp::to_text;

const RankedPlans* plans_of(const MachinePlans& machine) { return std::get_if<RankedPlans>(&machine.found); }

Seconds step_of(const MachinePlans& machine) { return plans_of(machine)->best.predicted.step; }

/// `78.8 % slower`, `as fast`
std::string slower_text(Seconds step, Seconds best) {
  constexpr double kRounding = 1e-9;  // relative; of sums in another order
  if (step <= best * (1 + kRounding)) return "as fast";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %% slower", 100 * (step / best - 1));
  return text.data();
}

int group_size(const MachinePlans& machine) {
  return pp::group_size(machine.tensor_degree, machine.context_degree, machine.expert_degree,
                        machine.shard_degree);
}

/// `2 devices of 1 core`, `4 groups of 2 GPUs`
std::string text_of(const MachinePlans& machine) {
  const std::string one = machine.cores_per_device == 0 ? "GPU" : "device";
  const int context = machine.context_degree, experts = machine.expert_degree, shards = machine.shard_degree;
  if (const int group = group_size(machine); group > 1) {
    std::string parts;
    if (context > 1 || experts > 1 || shards > 1) {
      parts = " (tensor " + std::to_string(machine.tensor_degree) + ", context " + std::to_string(context) +
              (experts > 1 ? ", experts " + std::to_string(experts) : "") +
              (shards > 1 ? ", shards " + std::to_string(shards) : "") + ")";
    }
    return counted(machine.devices, "group") + " of " + counted(group, one) + parts;
  }
  if (machine.cores_per_device == 0) return counted(machine.devices, one);
  return counted(machine.devices, "device") + " of " + counted(machine.cores_per_device, "core");
}

std::string verdict(const MachinePlans& best, const MachinePlans& other) {
  if (plans_of(other) == nullptr) return "no plan fits " + text_of(other);
  const std::string difference = slower_text(step_of(other), step_of(best));
  if (difference == "as fast") return text_of(other) + " would be as fast as " + text_of(best);
  return text_of(best) + (best.devices == 1 ? " beats" : " beat") + " every plan for " + text_of(other) + ": " +
         to_text(step_of(best)) + " against " + to_text(step_of(other)) + " per step, " + difference;
}

Machine entry(const MachinePlans& best, const MachinePlans& machine) {
  Machine entry{.devices = machine.devices,
                .cores_per_device = machine.cores_per_device,
                .profile_hash = machine.profile_hash,
                .step = {},
                .plan = {},
                .verdict = {},
                .tensor_degree = machine.tensor_degree,
                .context_degree = machine.context_degree,
                .expert_degree = machine.expert_degree,
                .shard_degree = machine.shard_degree};
  if (const RankedPlans* plans = plans_of(machine)) {
    entry.step = plans->best.predicted.step;
    entry.plan = plan_summary(plans->best);
  }
  if (&machine != &best) entry.verdict = verdict(best, machine);
  return entry;
}

/// A plan that may be listed beside the chosen one.
struct Rival {
  Alternative alternative;
  const Plan* plan;
};

/// Of the best plan of another machine.
Alternative alternative(const Plan& other) {
  Bytes peak{};
  for (const WorkerPrediction& worker : other.predicted.workers) peak = std::max(peak, worker.memory.peak);
  return {other.schedule.name,          stages_text(other),
          replicas_text(other),         other.training.micro_batches,
          other.predicted.step,         peak,
          recompute_text(other),        {},
          other.predicted.expected_step};
}

/// Says which machine the alternative is of.
void place(Alternative& alternative, const MachinePlans& machine) {
  alternative.cores_per_device = machine.cores_per_device;
  if (machine.cores_per_device != 0 && group_size(machine) == 1) return;
  alternative.tensor_degree = machine.tensor_degree;
  if (machine.context_degree > 1) alternative.context_degree = machine.context_degree;
  if (machine.expert_degree > 1) alternative.expert_degree = machine.expert_degree;
  if (machine.shard_degree > 1) alternative.shard_degree = machine.shard_degree;
}

std::vector<Rival> rivals(const MachinePlans& best, std::span<const MachinePlans> machines) {
  std::vector<Rival> list;
  const RankedPlans& own = *plans_of(best);
  for (std::size_t i = 0; i < own.others.size(); ++i) {
    list.push_back({own.best.alternatives[i], &own.others[i]});
    place(list.back().alternative, best);
  }
  for (const MachinePlans& machine : machines) {
    const RankedPlans* plans = plans_of(machine);
    if (&machine == &best || plans == nullptr) continue;
    const auto add = [&](Alternative one, const Plan& other) {
      one.why_not = slower_text(one.step, step_of(best));
      place(one, machine);
      list.push_back({std::move(one), &other});
    };
    add(alternative(plans->best), plans->best);
    for (std::size_t i = 0; i < plans->others.size(); ++i) add(plans->best.alternatives[i], plans->others[i]);
  }
  std::ranges::stable_sort(list, {}, [](const Rival& rival) { return rival.alternative.step; });
  return list;
}

struct Timed {
  const Layer* layer = nullptr;
  const LayerProfile* profile = nullptr;
  const LayerPoint* point = nullptr;
  Seconds time() const { return point->forward.median + point->backward.median; }
};

bool same_code(const Timed& a, const Timed& b) {
  const auto key = [](const Timed& one) {
    return std::tie(one.layer->op, one.profile->parameter_count, one.profile->parameters, one.point->output,
                    one.point->saved);
  };
  return key(a) == key(b) && a.profile->forward_flops_per_sample == b.profile->forward_flops_per_sample &&
         a.layer->attributes == b.layer->attributes;
}

std::vector<std::vector<Timed>> equal_groups(const Profile& profile) {
  std::vector<std::vector<Timed>> groups;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const LayerProfile& layer = profile.layers[l];
    if (layer.points.empty() || layer.points.back().out_of_memory) continue;
    const Timed timed{&profile.model.layers[l], &layer, &layer.points.back()};
    const auto known =
        std::ranges::find_if(groups, [&](const auto& group) { return same_code(group.front(), timed); });
    (known == groups.end() ? groups.emplace_back() : *known).push_back(timed);
  }
  return groups;
}

/// How far ascending times are from the one in the middle, in sum.
Seconds off_median(std::span<const Timed> ascending) {
  const Seconds middle = ascending[ascending.size() / 2].time();
  Seconds sum{};
  for (const Timed& one : ascending) sum += std::chrono::abs(one.time() - middle);
  return sum;
}

}  // namespace

std::variant<RankedPlans, Infeasible> choose_machine(std::span<const MachinePlans> machines, int top) {
  if (machines.size() == 1) return machines.front().found;
  const MachinePlans* best = nullptr;
  for (const MachinePlans& machine : machines) {
    if (plans_of(machine) == nullptr) continue;
    if (best == nullptr || step_of(machine) < step_of(*best)) best = &machine;
  }
  if (best == nullptr) return machines.front().found;
  RankedPlans chosen{plans_of(*best)->best, {}};
  chosen.best.alternatives.clear();
  for (const Rival& rival : rivals(*best, machines)) {
    if (std::ssize(chosen.others) >= top) break;
    chosen.best.alternatives.push_back(rival.alternative);
    chosen.others.push_back(*rival.plan);
  }
  chosen.best.machines.push_back(entry(*best, *best));
  for (const MachinePlans& machine : machines) {
    if (&machine != best) chosen.best.machines.push_back(entry(*best, machine));
  }
  return chosen;
}

std::optional<UnequalLayers> unequal_layers(const Profile& profile) {
  constexpr double kUnequal = 1.5, kShare = 0.05;
  if (profile.mode != ProfileMode::in_place && profile.mode != ProfileMode::isolated) return std::nullopt;
  std::vector<std::vector<Timed>> groups = equal_groups(profile);
  Seconds all{};
  for (const auto& group : groups) {
    for (const Timed& one : group) all += one.time();
  }
  Seconds worst = kShare * all;
  std::optional<UnequalLayers> found;
  for (auto& group : groups) {
    std::ranges::stable_sort(group, {}, &Timed::time);
    const Timed &fastest = group.front(), &slowest = group.back();
    const Seconds off = off_median(group);
    if (slowest.time() <= kUnequal * fastest.time() || off <= worst) continue;
    worst = off;
    found = {static_cast<int>(group.size()), fastest.layer->name, slowest.layer->name, fastest.time(),
             slowest.time()};
  }
  return found;
}

}  // namespace pp::plan
