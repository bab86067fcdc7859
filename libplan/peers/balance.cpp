#include "libplan/peers/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "libplan/search/exact/bottleneck.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

std::vector<double> prefix_sums(std::span<const double> costs) {
  std::vector<double> sums{0};
  for (const double cost : costs) sums.push_back(sums.back() + cost);
  return sums;
}

/// A stage costs what its layers do, cuts are free.
class SumCost : public StageCost {
 public:
  explicit SumCost(std::span<const double> costs) : sums_(prefix_sums(costs)) {}
  double stage(int begin, int end, DeviceSpan) const override { return sums_[at(end)] - sums_[at(begin)]; }
  double cut(int, DeviceSpan, CutSide) const override { return 0; }
  bool fits(int, int, DeviceSpan) const override { return true; }

 private:
  std::vector<double> sums_;
};

/// Blocks of a sequence by their ends; what Barany and Grinberg's rule looks at and changes.
class Blocks {
 public:
  Blocks(std::vector<double> costs, int blocks) : costs_(std::move(costs)) {
    for (int b = 0; b < blocks; ++b) ends_.push_back((b + 1) * (layers() / blocks));
    ends_.back() = layers();
  }

  int layers() const { return static_cast<int>(costs_.size()); }
  int count() const { return static_cast<int>(ends_.size()); }
  /// Added up anew each time: differences of prefix sums would not be exact enough for the rule to end.
  double size(int block) const {
    const int end = std::min(ends_[at(block)], layers());
    double sum = 0;
    for (int i = std::max(0, begin(block)); i < end; ++i) sum += costs_[at(i)];
    return sum;
  }
  int begin(int block) const { return block == 0 ? 0 : ends_[at(block - 1)]; }
  /// The rule can leave a block that begins behind its end; it is empty, and so is what follows up to there.
  std::vector<int> lengths() const {
    std::vector<int> lengths;
    int done = 0;
    for (const int end : ends_) {
      lengths.push_back(std::max(0, std::min(end, layers()) - done));
      done += lengths.back();
    }
    return lengths;
  }

  /// Ties: the last one.
  int largest() const {
    int best = 0;
    for (int b = 1; b < count(); ++b) best = size(b) >= size(best) ? b : best;
    return best;
  }
  /// Ties: the first one.
  int smallest() const {
    int best = 0;
    for (int b = 1; b < count(); ++b) best = size(b) < size(best) ? b : best;
    return best;
  }

  /// Moves one layer into `to` from its neighbour on the side of `from`; returns that neighbour. Pulling from
  /// an empty one lets it begin behind its end, or an end lie outside of the sequence; it counts as empty.
  int pull(int from, int to) {
    if (from < to) {
      --ends_[at(to - 1)];
      return to - 1;
    }
    ++ends_[at(to)];
    return to + 1;
  }

 private:
  std::vector<double> costs_;
  std::vector<int> ends_;
};

std::vector<double> scaled(std::span<const double> costs) {
  const auto [least, most] = std::minmax_element(costs.begin(), costs.end());
  const double range = *most > *least ? *most - *least : 1;
  std::vector<double> result;
  for (const double cost : costs) result.push_back((cost - *least) / range);
  return result;
}

}  // namespace

std::vector<int> balance_exactly(std::span<const double> costs, int blocks) {
  SearchSpace space;
  space.layers = static_cast<int>(costs.size());
  space.devices = space.exact_stages = blocks;
  space.max_replicas = 1;
  std::vector<int> lengths;
  for (const StageRange& stage : search_bottleneck(space, SumCost(costs)).partition)
    lengths.push_back(stage.end - stage.begin);
  return lengths;
}

std::vector<int> block_partition(std::span<const double> costs, int count) {
  constexpr std::size_t kMovesPerLayerAndBlock = 10;
  Blocks blocks(scaled(costs), count);
  int largest = blocks.largest();
  double size = blocks.size(largest);  // as of its choice
  for (std::size_t moves = kMovesPerLayerAndBlock * costs.size() * at(count); moves != 0; --moves) {
    const int smallest = blocks.smallest();
    if (size <= blocks.size(smallest) + 1) return blocks.lengths();
    if (blocks.pull(largest, smallest) != largest) continue;
    largest = blocks.largest();
    size = blocks.size(largest);
  }
  return {};
}

std::vector<int> lingvo_partition(std::span<const double> costs, int blocks) {
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<int> lengths(at(blocks), 0);
  double sum = 0;
  for (const double cost : costs) {
    sum += cost;
    const double share = total > 0 ? sum / total : 1;
    ++lengths[at(std::min(static_cast<int>(std::floor(share * blocks)), blocks - 1))];
  }
  return lengths;
}

}  // namespace pp::plan
