#include "libplan/cost/recompute.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <ranges>
#include <set>
#include <tuple>

#include "libplan/cost/constants.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// The layers of one stage and their prices.
class StageView {
 public:
  StageView(const PlanGraph& graph, std::span<const LayerPrice> prices, std::span<const int> layers)
      : graph_(graph), prices_(prices), held_(at(graph.size()), 0) {
    for (const int l : layers) held_[at(l)] = 1;
  }

  bool holds(int layer) const { return held_[at(layer)] != 0; }
  const LayerPrice& price(int l) const { return prices_[at(l)]; }

  /// Bytes the layer reads from inside and from outside of the stage.
  std::pair<std::int64_t, std::int64_t> inputs(int l) const {
    std::int64_t inside = 0;
    std::int64_t outside = 0;
    for (const int producer : graph_.layers[at(l)].producers)
      (holds(producer) ? inside : outside) += price(producer).output;
    return {inside, outside};
  }

  /// Bytes that the block reads from others of the stage, each tensor once.
  std::int64_t inputs_of(const std::vector<int>& block) const {
    std::set<int> read;
    for (const int l : block) {
      for (const int producer : graph_.layers[at(l)].producers)
        if (holds(producer) && !std::ranges::binary_search(block, producer)) read.insert(producer);
    }
    std::int64_t bytes = 0;
    for (const int l : read) bytes += price(l).output;
    return bytes;
  }

  /// A reader that keeps all of its inputs says so in its own saved_input, unless the layer keeps its result
  /// itself. For any other the profile leaves it open.
  bool may_share_result(int l) const {
    const GraphLayer& layer = graph_.layers[at(l)];
    return layer.feeds_loss || std::ranges::any_of(layer.consumers, [&](int reader) {
             if (!holds(reader)) return false;
             const auto [inside, outside] = inputs(reader);
             return price(reader).saved_input < inside + outside;
           });
  }

 private:
  const PlanGraph& graph_;
  std::span<const LayerPrice> prices_;
  std::vector<char> held_;  ///< per layer of the graph
};

/// A unit that releases something, as an item of a knapsack.
struct ReleasingUnit {
  CoverItem item;
  std::int64_t saved = 0;
  std::size_t position = 0;
};

/// By seconds per byte.
std::vector<ReleasingUnit> releasing_units(std::span<const RecomputeUnit> units, double in_flight) {
  std::vector<ReleasingUnit> result;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto& [layer, forward, saved, kept, workspace] = units[i];
    if (kept < saved) result.push_back({{forward, in_flight * static_cast<double>(saved - kept)}, saved, i});
  }
  std::ranges::stable_sort(result, {},
                           [](const ReleasingUnit& one) { return one.item.seconds / one.item.bytes; });
  return result;
}

/// Those that save no more than `largest`, in their order.
std::vector<CoverItem> items_within(std::span<const ReleasingUnit> units, std::int64_t largest) {
  std::vector<CoverItem> items;
  for (const ReleasingUnit& unit : units) {
    if (unit.saved <= largest) items.push_back(unit.item);
  }
  return items;
}

std::int64_t sum_saved(std::span<const RecomputeUnit> units) {
  return std::accumulate(units.begin(), units.end(), std::int64_t{0},
                         [](std::int64_t sum, const RecomputeUnit& unit) { return sum + unit.saved; });
}

/// `saved` of the units that release something: the possible largest ones.
std::set<std::int64_t> largest_units(std::span<const RecomputeUnit> units) {
  std::set<std::int64_t> sizes;
  for (const RecomputeUnit& unit : units) {
    if (unit.releases()) sizes.insert(unit.saved);
  }
  return sizes;
}

/// The blocks that the stage holds are units in place of their layers: of them their inputs are kept.
std::vector<RecomputeUnit> joined(const PlanGraph& graph, const StageView& stage,
                                  const std::vector<RecomputeUnit>& layers) {
  std::map<int, RecomputeUnit> units;  // by the first layer
  for (const RecomputeUnit& layer : layers) units.emplace(layer.layer, layer);
  for (const std::vector<int>& block : graph.recompute_blocks) {
    if (!std::ranges::all_of(block, [&](int l) { return stage.holds(l); })) continue;
    RecomputeUnit& unit = units.at(block.front());
    for (const int l : block | std::views::drop(1)) {
      const RecomputeUnit& layer = units.at(l);
      unit.forward += layer.forward;
      unit.saved += layer.saved;
      unit.workspace = std::max(unit.workspace, layer.workspace);
      units.erase(l);
    }
    const LayerPrice& last = stage.price(block.back());
    unit.kept = stage.inputs_of(block);
    if (stage.may_share_result(block.back())) unit.kept += std::min(last.output, last.saved - last.saved_input);
  }
  std::vector<RecomputeUnit> result;
  for (const auto& [layer, unit] : units) result.push_back(unit);
  return result;
}

/// Cheapest seconds per byte first; equal items stand together.
std::vector<std::size_t> by_rate(std::span<const CoverItem> items) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::tuple(items[i].seconds / items[i].bytes, items[i].bytes, i);
  });
  return order;
}

class Knapsack {
 public:
  Knapsack(std::span<const CoverItem> items, double limit, std::int64_t& work)
      : items_(items), order_(by_rate(items)), work_(work) {
    best_.seconds = limit;
  }

  Cover solve(double bytes) {
    visit(0, bytes, 0);
    if (!found_) return {};
    std::ranges::sort(best_.items);
    return best_;
  }

 private:
  const CoverItem& item(std::size_t place) const { return items_[order_[place]]; }

  /// Seconds if the items from `next` on could be taken in part; infinity when they do not make up enough.
  double relaxed(std::size_t next, double bytes) {
    double seconds = 0;
    --work_;
    for (; bytes > 0; ++next, --work_) {
      if (next == order_.size()) return kInfinity;
      const double share = std::min(1.0, bytes / item(next).bytes);
      seconds += share * item(next).seconds;
      bytes -= item(next).bytes;
    }
    return seconds;
  }

  void visit(std::size_t next, double bytes, double seconds) {
    if (work_ <= 0 || seconds + relaxed(next, bytes) >= best_.seconds) return;
    if (bytes <= 0) {
      best_ = {seconds, taken_};
      found_ = true;
      return;
    }
    const CoverItem one = item(next);
    taken_.push_back(order_[next]);
    visit(next + 1, bytes - one.bytes, seconds + one.seconds);
    taken_.pop_back();
    while (next < order_.size() && item(next).bytes == one.bytes && item(next).seconds == one.seconds) ++next;
    visit(next, bytes, seconds);
  }

  std::span<const CoverItem> items_;
  std::vector<std::size_t> order_;
  std::vector<std::size_t> taken_;
  Cover best_;
  bool found_ = false;
  std::int64_t& work_;
};

}  // namespace

std::vector<RecomputeUnit> recompute_units(const PlanGraph& graph, std::span<const LayerPrice> prices,
                                           std::span<const int> layers, std::int64_t input) {
  const StageView stage(graph, prices, layers);
  std::vector<RecomputeUnit> units;
  units.reserve(layers.size());
  for (int l = 0; l < graph.size(); ++l) {
    if (!stage.holds(l)) continue;
    const LayerPrice& price = stage.price(l);
    const auto [inside, outside] = stage.inputs(l);
    const std::int64_t elsewhere = std::min({price.saved_input, outside, input});
    input -= elsewhere;
    // What it saves of its inputs and did not come from a layer are the model's own inputs.
    RecomputeUnit unit{l, price.forward, price.saved - elsewhere,
                       std::max(inside, price.saved_input - elsewhere), price.workspace};
    if (stage.may_share_result(l)) unit.kept += std::min(price.output, price.saved - price.saved_input);
    units.push_back(unit);
  }
  return graph.recompute_blocks.empty() ? units : joined(graph, stage, units);
}

std::int64_t activation_bytes(std::span<const RecomputeUnit> units, std::span<const std::size_t> chosen,
                              int in_flight) {
  std::int64_t bytes = in_flight * sum_saved(units);
  std::int64_t largest = 0;
  for (const std::size_t i : chosen) {
    bytes -= in_flight * (units[i].saved - units[i].kept);
    largest = std::max(largest, units[i].saved);
  }
  return bytes + largest;
}

Released release_most(std::span<const RecomputeUnit> units, double in_flight) {
  std::vector<std::pair<std::int64_t, std::int64_t>> items;  // by size: what each releases
  for (const RecomputeUnit& unit : units) {
    if (unit.releases()) items.emplace_back(unit.saved, unit.saved - unit.kept);
  }
  std::ranges::sort(items);
  Released best;
  for (const RecomputeUnit& unit : units) best.workspace = std::max(best.workspace, unit.workspace);
  std::int64_t released = 0;
  for (const auto& [saved, release] : items) {
    released += release;
    if (in_flight * static_cast<double>(released - best.bytes) > static_cast<double>(saved - best.again))
      best = {released, saved, best.workspace};
  }
  return best;
}

std::optional<std::vector<std::size_t>> choose_units(std::span<const RecomputeUnit> units, double in_flight,
                                                     std::int64_t limit) {
  const double excess = in_flight * static_cast<double>(sum_saved(units)) - static_cast<double>(limit);
  if (excess <= 0) return std::vector<std::size_t>{};
  const std::vector<ReleasingUnit> all = releasing_units(units, in_flight);
  // The possible largest units, with what a choice among those no larger costs at least: few need a knapsack.
  std::vector<std::pair<double, std::int64_t>> sizes;
  for (const std::int64_t largest : largest_units(units)) {
    const double least = cover_relaxed(items_within(all, largest), excess + static_cast<double>(largest));
    sizes.emplace_back(least, largest);
  }
  std::ranges::sort(sizes);
  Cover best;
  std::vector<std::size_t> chosen;
  std::int64_t work = kCoverWork;
  for (const auto& [least, largest] : sizes) {
    if (least >= best.seconds) break;
    Cover cover =
        cover_exactly(items_within(all, largest), excess + static_cast<double>(largest), best.seconds, work);
    if (cover.seconds >= best.seconds) continue;
    best = std::move(cover);
    chosen.clear();
    std::size_t place = 0;
    for (const ReleasingUnit& unit : all) {
      if (unit.saved <= largest && std::ranges::binary_search(best.items, place++))
        chosen.push_back(unit.position);
    }
    std::ranges::sort(chosen);
  }
  if (best.seconds == std::numeric_limits<double>::infinity()) return std::nullopt;
  return chosen;
}

ChainUnits::ChainUnits(const PlanGraph& graph, std::span<const LayerPrice> prices, std::vector<int> order)
    : graph_(graph), prices_(prices), order_(std::move(order)) {}

std::vector<RecomputeUnit> ChainUnits::stage(int begin, int end, std::int64_t input) const {
  return recompute_units(graph_, prices_, std::span(order_).subspan(at(begin), at(end - begin)), input);
}

Released ChainUnits::release_most(int begin, int end, std::int64_t input, double in_flight) const {
  const auto [found, added] = known_.try_emplace({begin, end, in_flight});
  if (added) found->second = plan::release_most(stage(begin, end, input), in_flight);
  return found->second;
}

Cover cover_exactly(std::span<const CoverItem> items, double bytes, double limit, std::int64_t& work) {
  Cover best = work > 0 ? Knapsack(items, limit, work).solve(bytes) : Cover();
  if (work > 0 || best.seconds < kInfinity) return best;
  Cover greedy = cover_greedily(items, bytes);
  return greedy.seconds < limit ? greedy : Cover();
}

double cover_relaxed(std::span<const CoverItem> items, double bytes) {
  double seconds = 0;
  for (auto item = items.begin(); bytes > 0; ++item) {
    if (item == items.end()) return kInfinity;
    seconds += std::min(1.0, bytes / item->bytes) * item->seconds;
    bytes -= item->bytes;
  }
  return seconds;
}

Cover cover_greedily(std::span<const CoverItem> items, double bytes) {
  Cover cover{0, {}};
  for (const std::size_t i : by_rate(items)) {
    if (bytes <= 0) break;
    cover.items.push_back(i);
    cover.seconds += items[i].seconds;
    bytes -= items[i].bytes;
  }
  if (bytes > 0) return {};
  std::ranges::sort(cover.items);
  return cover;
}

}  // namespace pp::plan
