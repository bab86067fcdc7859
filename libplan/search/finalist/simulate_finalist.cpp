#include "libplan/search/finalist/simulate_finalist.h"
#include "libplan/price/simulated.h"

#include <algorithm>
#include <tuple>

namespace pp::plan {
namespace {

/// As simulate_finalist().
bool simulate_with(Finalist& finalist, const RecomputeChoice& choice, const PricingContext& context,
                   const PlanRequest& request, double worth) {
  finalist.again = choice;
  finalist.assignment = with_recompute(assign(finalist, context.graph, request), choice);
  finalist.endless = is_endless(finalist.assignment);
  if (finalist.endless) return true;
  const PricedStages priced = price_stages(context, finalist.assignment);
  if (finalist.schedule->synchronous && worth < std::numeric_limits<double>::infinity()) {
    finalist.prediction.step = simulated_step(priced, finalist.assignment, context, context.model.scale);
    if (finalist.ranked_step() >= worth) return false;
  }
  finalist.prediction = simulate_prediction(priced, finalist.assignment, context);
  finalist.short_by = std::max(Bytes(0), simulated_shortage(finalist, context.cluster, request));
  return true;
}

auto simulated_rank(const Finalist& finalist) {
  return std::tuple(finalist.endless, finalist.short_by, finalist.rounded_step(),
                    recomputed_layers(finalist.again, finalist.assignment));
}

}  // namespace

std::optional<Recompute> whole_mode(RecomputeMode mode) {
  switch (mode) {
    case RecomputeMode::never: return Recompute::never;
    case RecomputeMode::except_last: return Recompute::except_last;
    case RecomputeMode::always: return Recompute::always;
    case RecomputeMode::automatic: break;
  }
  return std::nullopt;
}

bool simulate_finalist(Finalist& finalist, const PricingContext& context, const PlanRequest& request,
                       double worth) {
  const int stages = static_cast<int>(finalist.partition.size());
  std::vector<RecomputeChoice> choices;
  if (const std::optional<Recompute> mode = whole_mode(finalist.recompute)) {
    choices.push_back(*mode == Recompute::never ? RecomputeChoice() : whole_stages(stages, *mode));
  } else {
    finalist.assignment = assign(finalist, context.graph, request);
    choices =
        recompute_choices(context, finalist.assignment, worker_limits(finalist, context.cluster, request));
  }
  bool known = simulate_with(finalist, choices.front(), context, request, worth);
  for (std::size_t i = 1; i < choices.size(); ++i) {
    Finalist other = finalist.unpriced();
    if (!simulate_with(other, choices[i], context, request, worth)) continue;
    if (!known || simulated_rank(other) < simulated_rank(finalist)) finalist = std::move(other);
    known = true;
  }
  return known;
}

}  // namespace pp::plan
