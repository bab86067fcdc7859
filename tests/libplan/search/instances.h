// Small planning problems for tests: a textbook cost on plain tables, all partitions by enumeration, and random
// instances from raw generator bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "libplan/cost/stage_cost.h"
#include "libprofile/core/index.h"

namespace pp::plan::test {

/// stage = (C + 2(q-1)/q W)/q, cut = 2x/q on both sides, memory = W + K*A with K = ceil((u+q)/q), optionally
/// stashed (K weight versions). Times and bytes share one unit: bandwidth is 1.
class TextbookCost : public StageCost {
 public:
  TextbookCost(const std::vector<double>& times, const std::vector<double>& weights, std::vector<double> cuts)
      : times_(prefix(times)), weights_(prefix(weights)), cuts_(std::move(cuts)) {}

  TextbookCost& with_memory(const std::vector<double>& saved, double limit, bool stash = false) {
    saved_ = prefix(saved);
    limit_ = limit;
    stash_ = stash;
    return *this;
  }

  double stage(int begin, int end, DeviceSpan span) const override {
    const int replicas = span.count;
    const double reduce = 2.0 * (replicas - 1) / replicas * sum(weights_, begin, end);
    return (sum(times_, begin, end) + reduce) / replicas;
  }
  double cut(int boundary, DeviceSpan span, CutSide) const override {
    return 2 * cuts_[at(boundary)] / span.count;
  }
  double fill(int boundary, DeviceSpan) const override { return fill_.empty() ? 0 : fill_[at(boundary)]; }
  TextbookCost& with_fill(std::vector<double> fill) {
    fill_ = std::move(fill);
    return *this;
  }
  double memory(int begin, int end, int replicas, int later) const {
    const int window = (later + replicas + replicas - 1) / replicas;
    const double weights = sum(weights_, begin, end) * (stash_ ? window : 1);
    return weights + window * sum(saved_, begin, end);
  }
  bool fits(int begin, int end, DeviceSpan span) const override {
    return saved_.empty() || memory(begin, end, span.count, span.first) <= limit_;
  }

 private:
  static std::vector<double> prefix(const std::vector<double>& values) {
    std::vector<double> sums{0};
    for (const double value : values) sums.push_back(sums.back() + value);
    return sums;
  }
  static double sum(const std::vector<double>& prefix, int begin, int end) {
    return prefix[at(end)] - prefix[at(begin)];
  }

  std::vector<double> times_, weights_, saved_, cuts_, fill_;  ///< cuts_[k], fill_[k] of boundary k
  double limit_ = std::numeric_limits<double>::infinity();
  bool stash_ = false;
};

/// Example A: times 6,5,4,3,2, weights 0,1,1,6,9, x_1..x_4 = 3,2,1,1.
inline TextbookCost example_a() { return {{6, 5, 4, 3, 2}, {0, 1, 1, 6, 9}, {0, 3, 2, 1, 1, 0}}; }

/// Calls `visit` with every partition of the space; O(2^layers * devices^stages), so for small ones.
inline void for_each_partition(const SearchSpace& space, const std::function<void(const Partition&)>& visit) {
  Partition partition;
  const std::function<void(int, int)> extend = [&](int begin, int used) {
    if (begin == space.layers) {
      const int stages = static_cast<int>(partition.size());
      if (space.exact_stages != 0 && stages != space.exact_stages) return;
      if (space.max_stages != 0 && stages > space.max_stages) return;
      if (!space.replicas.empty() && replicas_of(partition) != space.replicas) return;
      visit(partition);
      return;
    }
    for (int end = begin + 1; end <= space.layers; ++end) {
      if (end != space.layers && !space.may_cut(end)) continue;
      for (int replicas = 1; replicas <= std::min(space.replica_limit(), space.devices - used); ++replicas) {
        partition.push_back({begin, end, replicas});
        extend(end, used + replicas);
        partition.pop_back();
      }
    }
  };
  extend(0, 0);
}

/// `fits(...)` of every stage with the devices behind it.
inline bool fits_everywhere(const Partition& partition, const StageCost& cost) {
  int later = 0;
  for (auto stage = partition.rbegin(); stage != partition.rend(); ++stage) {
    if (!cost.fits(stage->begin, stage->end, {later, stage->replicas})) return false;
    later += stage->replicas;
  }
  return true;
}

/// Raw bits only: std distributions differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}
  int integer(int low, int high) {
    return low + static_cast<int>(bits_() % static_cast<std::uint64_t>(high - low + 1));
  }
  double unit() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  /// Whole numbers 0..limit, or doubles below it.
  std::vector<double> values(int count, double limit, bool whole) {
    std::vector<double> result;
    for (int i = 0; i < count; ++i) {
      result.push_back(whole ? integer(0, static_cast<int>(limit)) : limit * unit());
    }
    return result;
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace pp::plan::test
