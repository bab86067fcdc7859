#include "libplan/price/recompute_choice.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <ranges>
#include <utility>

#include "libplan/plan/programs.h"
#include "libplan/schedule/generators.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// A stage that may not have room for what it keeps.
struct TightStage {
  std::vector<RecomputeUnit> units;
  double window = 1;        ///< micro-batches in flight, as if they were all of the largest size
  bool fits = false;        ///< all that it keeps, with nothing run again
  std::int64_t room = 0;    ///< for the activations of all micro-batches in flight, when something runs again
  std::int64_t saved = 0;   ///< of one micro-batch, without the stage's input
  std::int64_t other = 0;   ///< the part of `saved` that belongs to no layer: the loss
  std::int64_t hidden = 0;  ///< workspace that hides in what is saved while no layer runs again

  bool fits_again() const { return saved <= room; }
  std::int64_t held(std::int64_t bytes) const {
    return static_cast<std::int64_t>(std::ceil(window * static_cast<double>(bytes)));
  }

  /// Some layers, as the stage does not fit without any: once one runs again, it holds all that it received.
  std::optional<StageRecompute> layers() const {
    const std::int64_t limit = room - hidden - held(other);
    const auto chosen = choose_units(units, window, limit);
    if (!chosen) return std::nullopt;
    if (chosen->empty()) return cheapest_layer(limit);
    StageRecompute stage;
    for (const std::size_t i : *chosen) stage.layers.push_back(units[i].layer);
    return stage;
  }

  /// With these layers run again, ascending; none: nothing is.
  bool fits_with(const std::vector<int>& layers) const {
    if (layers.empty()) return fits;
    std::int64_t bytes = saved, largest = 0;
    for (const RecomputeUnit& unit : units) {
      if (!std::ranges::binary_search(layers, unit.layer)) continue;
      bytes -= unit.saved - unit.kept;
      largest = std::max(largest, unit.saved);
    }
    return held(bytes) + largest + hidden <= room;
  }

  /// The one that takes least to run again, of those with which alone the activations are within the limit.
  std::optional<StageRecompute> cheapest_layer(std::int64_t limit) const {
    const RecomputeUnit* best = nullptr;
    for (const RecomputeUnit& unit : units) {
      const std::int64_t bytes = held(saved - other - unit.saved + unit.kept) + unit.saved;
      if (bytes <= limit && (best == nullptr || unit.forward < best->forward)) best = &unit;
    }
    if (best == nullptr) return std::nullopt;
    return StageRecompute{.layers = {best->layer}};
  }
};

/// `kept`: the stage's costs when nothing runs again; `again`: when the whole stage does, and so holds all that
/// it received.
TightStage look_at(const PricingContext& context, const Assignment& assignment,
                   std::vector<RecomputeUnit> units, const StageCosts& kept, const StageCosts& again,
                   std::span<const Bytes> limits, int stage) {
  TightStage tight;
  tight.units = std::move(units);
  tight.window = 0;
  for (const int worker : assignment.stage_workers[at(stage)]) {
    tight.window = std::max(
        tight.window, held_of(assignment.programs[at(worker)], StageId{stage}, context.model.scale.bytes));
  }
  tight.saved = tight.other = again.saved.value;
  for (const RecomputeUnit& unit : tight.units) {
    tight.other -= unit.saved;
    tight.hidden = std::max(tight.hidden, unit.workspace - again.workspace.value);
  }
  Bytes limit = limits[at(assignment.stage_workers[at(stage)].front())];
  for (const int worker : assignment.stage_workers[at(stage)]) limit = std::min(limit, limits[at(worker)]);
  const auto room = [&](const StageCosts& costs) {
    return (limit - costs.fixed() - costs.workspace).value - tight.held(costs.input.value);
  };
  tight.fits = tight.held(kept.saved.value) <= room(kept);
  tight.room = room(again);
  return tight;
}

std::vector<TightStage> look_at_all(const PricingContext& context, const Assignment& assignment,
                                    std::span<const Bytes> limits) {
  const PricedStages kept = price_stages(context, assignment);
  const PricedStages again =
      price_stages(context, with_recompute(assignment, whole_stages(assignment.stages(), Recompute::always)));
  std::vector<std::vector<RecomputeUnit>> units = stage_units(context, assignment);
  std::vector<TightStage> stages;
  for (int s = 0; s < assignment.stages(); ++s) {
    stages.push_back(look_at(context, assignment, std::move(units[at(s)]), kept.stages[at(s)],
                             again.stages[at(s)], limits, s));
  }
  return stages;
}

/// What a stage of these layers, ascending, has of the blocks: all of one, or the part on this side of a cut.
std::vector<std::vector<int>> held_blocks(const PlanGraph& graph, const std::vector<int>& layers) {
  std::vector<std::vector<int>> held;
  for (const std::vector<int>& block : graph.recompute_blocks) {
    std::vector<int> part;
    std::ranges::set_intersection(block, layers, std::back_inserter(part));
    if (!part.empty()) held.push_back(std::move(part));
  }
  return held;
}

bool fit(const std::vector<TightStage>& stages, const RecomputeChoice& choice) {
  for (std::size_t s = 0; s < stages.size(); ++s)
    if (!stages[s].fits_with(choice[s].layers)) return false;
  return true;
}

/// As recompute_choices() with blocks.
RecomputeChoice fewest_blocks(const PlanGraph& graph, const Assignment& assignment,
                              const std::vector<TightStage>& stages) {
  const int most = most_blocks(graph, assignment.stage_layers);
  RecomputeChoice choice;
  for (int count = 0; count <= most; ++count) {
    choice = first_blocks(graph, assignment.stage_layers, count);
    if (fit(stages, choice)) break;
  }
  return choice;
}

}  // namespace

RecomputeChoice whole_stages(int stages, Recompute mode) {
  return RecomputeChoice(at(stages), StageRecompute{mode});
}

RecomputeChoice first_blocks(const PlanGraph& graph, const std::vector<std::vector<int>>& stage_layers,
                             int count) {
  RecomputeChoice choice;
  for (const std::vector<int>& layers : stage_layers) {
    std::vector<int>& again = choice.emplace_back().layers;
    for (const std::vector<int>& block : held_blocks(graph, layers) | std::views::take(count))
      again.insert(again.end(), block.begin(), block.end());
    std::ranges::sort(again);
  }
  return choice;
}

int most_blocks(const PlanGraph& graph, const std::vector<std::vector<int>>& stage_layers) {
  std::size_t most = 0;
  for (const std::vector<int>& layers : stage_layers) most = std::max(most, held_blocks(graph, layers).size());
  return static_cast<int>(most);
}

Assignment with_recompute(Assignment assignment, const RecomputeChoice& choice) {
  if (choice.empty()) return assignment;
  for (WorkerProgram& worker : assignment.programs)
    std::erase_if(worker.program, [](const Op& op) { return op.kind == OpKind::recompute; });
  assignment.recompute.clear();
  ScheduleRequest request;
  request.micro_batches = assignment.micro_batches;
  for (const StageRecompute& stage : choice) {
    request.recompute.push_back(stage.whole);
    assignment.recompute.push_back(stage.layers);
  }
  Schedule schedule{{}, std::move(assignment.programs)};
  insert_recompute(request, schedule);
  assignment.programs = std::move(schedule.workers);
  return assignment;
}

std::vector<RecomputeChoice> recompute_choices(const PricingContext& context, const Assignment& assignment,
                                               std::span<const Bytes> limits) {
  const std::vector<TightStage> stages = look_at_all(context, assignment, limits);
  if (!context.graph.recompute_blocks.empty()) return {fewest_blocks(context.graph, assignment, stages)};
  const StageRecompute whole{Recompute::always};
  RecomputeChoice by_layers, by_stages;
  for (const TightStage& stage : stages) {
    if (stage.fits) {
      by_layers.emplace_back();
      by_stages.emplace_back();
      continue;
    }
    const StageRecompute layers = stage.layers().value_or(whole);
    by_layers.push_back(layers);
    by_stages.push_back(stage.fits_again() ? whole : layers);
  }
  if (policy_of(by_layers) == RecomputePolicy::never) return {{}};
  if (by_layers == by_stages) return {by_layers};
  return {by_layers, by_stages};
}

int recomputed_layers(const RecomputeChoice& choice, const Assignment& assignment) {
  std::size_t count = 0;
  for (std::size_t s = 0; s < choice.size(); ++s) {
    const bool whole = choice[s].whole != Recompute::never;
    count += whole ? assignment.stage_layers[s].size() : choice[s].layers.size();
  }
  return static_cast<int>(count);
}

std::string recompute_text(const RecomputeChoice& choice) {
  if (policy_of(choice) == RecomputePolicy::never) return {};
  std::string text;
  for (const StageRecompute& stage : choice) {
    text += text.empty() ? "" : "|";
    if (stage.whole != Recompute::never) {
      text += "all";
    } else {
      text += stage.layers.empty() ? "-" : std::to_string(stage.layers.size());
    }
  }
  return text;
}

RecomputePolicy policy_of(const RecomputeChoice& choice) {
  const auto all = [&](const StageRecompute& one) {
    return std::ranges::all_of(choice, [&](const StageRecompute& stage) { return stage == one; });
  };
  if (all({})) return RecomputePolicy::never;
  if (all({Recompute::always})) return RecomputePolicy::always;
  if (all({Recompute::except_last})) return RecomputePolicy::except_last;
  return RecomputePolicy::per_stage;
}

}  // namespace pp::plan
