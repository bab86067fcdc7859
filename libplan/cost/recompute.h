// Recomputed forwards (Chen et al., arXiv 1604.06174): what they release and cost, layer by layer of a stage,
// and which layers to choose: those that make up the missing bytes in the least time, a covering knapsack. A
// stage may also be recomputed as a whole from its inputs (R in the programs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/graph.h"
#include "libplan/cost/layer_curve.h"
#include "libprofile/core/enum_names.h"
#include "libprofile/core/trainer.h"

namespace pp::plan {

/// What a planning request allows.
enum class RecomputeMode {
  never,
  except_last,  ///< every stage as a whole, all micro-batches but the last
  always,       ///< every stage as a whole, all micro-batches
  automatic     ///< a stage without room: as a whole, or the layers that cost the least time
};

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::RecomputeMode> {
  static constexpr std::array table{std::pair{plan::RecomputeMode::never, "never"sv},
                                    std::pair{plan::RecomputeMode::except_last, "except_last"sv},
                                    std::pair{plan::RecomputeMode::always, "always"sv},
                                    std::pair{plan::RecomputeMode::automatic, "auto"sv}};
};
}  // namespace pp

namespace pp::plan {

/// A layer of a stage, per micro-batch.
struct RecomputeUnit {
  int layer = 0;
  double forward = 0;      ///< seconds to run it again
  std::int64_t saved = 0;  ///< bytes it keeps for backward, without what the stage's input holds
  std::int64_t kept =
      0;  ///< bytes that stay when it runs again: its inputs, and what others may keep of `saved`

  std::int64_t workspace = 0;  ///< bytes it needs while it works, beside what is saved

  bool releases() const { return kept < saved; }
  bool operator==(const RecomputeUnit&) const = default;
};

/// One unit per layer of a stage, ascending. `input`: bytes of the tensors that enter the stage, which `saved`
/// does not count again. A profile does not say who else keeps a layer's result: it counts as kept unless all
/// readers in the stage keep all of their inputs themselves. O(layers of the graph + edges of the stage's).
std::vector<RecomputeUnit> recompute_units(const PlanGraph& graph, std::span<const LayerPrice> prices,
                                           std::span<const int> layers, std::int64_t input);

/// Bytes of activations with `in_flight` micro-batches when the units `chosen` (positions) run again:
/// in_flight * (saved of the others + kept of these) + the largest `saved` of these.
std::int64_t activation_bytes(std::span<const RecomputeUnit> units, std::span<const std::size_t> chosen,
                              int in_flight);

/// What a choice changes.
struct Released {
  std::int64_t bytes = 0;      ///< of each micro-batch in flight
  std::int64_t again = 0;      ///< the largest `saved` of the choice, there in backward
  std::int64_t workspace = 0;  ///< the largest of all units: less is saved behind them in which it could hide
};
/// The choice with the least activation_bytes(); smaller micro-batches in flight count in part. O(units log
/// units).
Released release_most(std::span<const RecomputeUnit> units, double in_flight);

/// The units, ascending, that cost the least time among the choices within `limit` bytes of activations;
/// nothing when no choice is. For each possible largest unit a covering knapsack, so as exact as
/// cover_exactly().
std::optional<std::vector<std::size_t>> choose_units(std::span<const RecomputeUnit> units, double in_flight,
                                                     std::int64_t limit);

/// The stages of one linear order, for StageMemory. Graph and prices must outlive it.
class ChainUnits {
 public:
  ChainUnits(const PlanGraph& graph, std::span<const LayerPrice> prices, std::vector<int> order);

  /// Of the layers at positions [begin, end).
  std::vector<RecomputeUnit> stage(int begin, int end, std::int64_t input) const;
  /// release_most() of such a stage; remembered. Not thread-safe.
  Released release_most(int begin, int end, std::int64_t input, double in_flight) const;

 private:
  struct Key {
    int begin, end;
    double in_flight;
    auto operator<=>(const Key&) const = default;
  };
  const PlanGraph& graph_;
  std::span<const LayerPrice> prices_;
  std::vector<int> order_;
  mutable std::map<Key, Released> known_;
};

struct CoverItem {
  double seconds = 0;  ///< what taking it costs
  double bytes = 0;    ///< what it makes up, above 0
};

struct Cover {
  double seconds = std::numeric_limits<double>::infinity();  ///< infinity: all items together are too few
  std::vector<std::size_t> items;                            ///< ascending
};

/// The least seconds below `limit` over subsets of `items` that make up at least `bytes`; infinity when there
/// is none. Branch and bound on the fractional relaxation; equal items are told apart by their number only.
/// Exponential at worst: once `work`, from which it takes the items that it looks at, is used up, the best so
/// far stands, or the greedy one.
Cover cover_exactly(std::span<const CoverItem> items, double bytes, double limit, std::int64_t& work);
constexpr std::int64_t kCoverWork = 4'000'000;  ///< some hundredths of a second
inline Cover cover_exactly(std::span<const CoverItem> items, double bytes,
                           double limit = std::numeric_limits<double>::infinity()) {
  std::int64_t work = kCoverWork;
  return cover_exactly(items, bytes, limit, work);
}

/// The relaxation: the seconds if items could be taken in part; infinity when all are too few. `items` by
/// seconds per byte. O(items).
double cover_relaxed(std::span<const CoverItem> items, double bytes);

/// The same taken greedily by seconds per byte: never less, sometimes more.
Cover cover_greedily(std::span<const CoverItem> items, double bytes);

}  // namespace pp::plan
