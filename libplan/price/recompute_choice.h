// What the stages of a plan run again instead of keeping it, stage by stage: the choices worth simulating, and
// how programs and stages look with one.
#pragma once

#include <span>
#include <vector>

#include "libplan/price/pricing.h"

namespace pp::plan {

/// Nothing, the whole stage (R in its programs), or some of its layers inside backward.
struct StageRecompute {
  Recompute whole = Recompute::never;
  std::vector<int> layers{};  ///< of the graph, ascending
  bool operator==(const StageRecompute&) const = default;
};
/// Per stage; empty: nothing anywhere.
using RecomputeChoice = std::vector<StageRecompute>;

/// Every stage as a whole.
RecomputeChoice whole_stages(int stages, Recompute mode);

/// Of every stage its first `count` of graph.recompute_blocks, or what it has of them; all of them where it has
/// fewer.
RecomputeChoice first_blocks(const PlanGraph& graph, const std::vector<std::vector<int>>& stage_layers,
                             int count);
/// The most such blocks that a stage has.
int most_blocks(const PlanGraph& graph, const std::vector<std::vector<int>>& stage_layers);

/// `assignment` with the choice in place of the one it may have. Streams come without R.
Assignment with_recompute(Assignment assignment, const RecomputeChoice& choice);

/// For stages on different workers, `limits` bytes per worker: stages with room keep everything; the others run
/// again what costs the least time, first preferring single layers, then, if that differs, whole stages, whose
/// R may run while a gradient is on its way. Where neither makes room the stage runs again as a whole. One or
/// two choices; the memory is that of the formula, at least what the simulator finds. With
/// graph.recompute_blocks the one choice is the fewest first blocks of every stage that make room, all of them
/// where that takes more.
std::vector<RecomputeChoice> recompute_choices(const PricingContext& context, const Assignment& assignment,
                                               std::span<const Bytes> limits);

/// Layers that run again; a whole stage counts all of its own.
int recomputed_layers(const RecomputeChoice& choice, const Assignment& assignment);

/// Per stage `-`, `all` or the number of layers: `all|2|-`; empty when nothing runs again.
std::string recompute_text(const RecomputeChoice& choice);
RecomputePolicy policy_of(const RecomputeChoice& choice);

}  // namespace pp::plan
