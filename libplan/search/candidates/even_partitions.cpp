#include "libplan/search/candidates/even_partitions.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "libplan/cost/constants.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr int kHalvings = 20;  ///< what they leave is far below a layer

/// Whether layers from a boundary on make so many stages, each within [least, most] seconds.
class EvenReach {
 public:
  EvenReach(const SearchSpace& space, int stages, std::span<const double> prefix)
      : space_(space), prefix_(prefix), layers_(static_cast<int>(prefix.size()) - 1), stages_(stages) {}

  bool fill(double least, double most) {
    least_ = least * (1 - kRounding);
    most_ = most * (1 + kRounding);
    // Of boundaries 0..k, those from which s stages reach the end.
    counts_.assign(at(stages_ + 1), std::vector<int>(at(layers_ + 2), 0));
    for (int k = 0; k <= layers_; ++k) counts_[0][at(k + 1)] = k == layers_ ? 1 : 0;
    for (int s = 1; s <= stages_; ++s) {
      int first = 1, last = 0;  // ends of a stage that begins at k
      for (int k = 0; k <= layers_; ++k) {
        first = std::max(first, k + 1);
        while (first <= layers_ && seconds(k, first) < least_) ++first;
        while (last < layers_ && seconds(k, last + 1) <= most_) ++last;
        const bool open = k == 0 || (k < layers_ && space_.may_cut(k));
        const bool reaches = open && last >= first && among(s - 1, first, last) > 0;
        counts_[at(s)][at(k + 1)] = counts_[at(s)][at(k)] + (reaches ? 1 : 0);
      }
    }
    return reaches(stages_, 0);
  }

  /// After fill(): every boundary by `choose`, from the possible ends of a stage (ascending) and its number.
  Partition walk(const std::function<int(std::span<const int> ends, int stage)>& choose) const {
    Partition partition;
    for (int s = stages_, begin = 0; s > 0; --s) {
      std::vector<int> ends;
      for (int end = begin + 1; end <= layers_ && seconds(begin, end) <= most_; ++end) {
        if (seconds(begin, end) >= least_ && reaches(s - 1, end)) ends.push_back(end);
      }
      const int end = choose(ends, stages_ - s);
      partition.push_back({begin, end, 1});
      begin = end;
    }
    return partition;
  }

 private:
  double seconds(int begin, int end) const { return prefix_[at(end)] - prefix_[at(begin)]; }
  int among(int stages, int first, int last) const {
    return counts_[at(stages)][at(last + 1)] - counts_[at(stages)][at(first)];
  }
  bool reaches(int stages, int boundary) const { return among(stages, boundary, boundary) > 0; }

  const SearchSpace& space_;
  std::span<const double> prefix_;
  int layers_, stages_;
  double least_ = 0, most_ = 0;
  std::vector<std::vector<int>> counts_;
};

/// The last value that holds when halving from one that holds towards one that does not.
double bisect(double holds, double fails, const std::function<bool(double)>& test) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = holds + (fails - holds) / 2;
    (test(middle) ? holds : fails) = middle;
  }
  return holds;
}

}  // namespace

std::vector<Partition> even_partitions(const SearchSpace& space, int stages, std::span<const double> prefix) {
  constexpr std::int64_t kMost = 1'000'000;
  const int layers = static_cast<int>(prefix.size()) - 1;
  const double all = prefix.back() - prefix.front();
  if (stages < 1 || stages > layers || std::int64_t{stages} * layers > kMost) return {};
  EvenReach reach(space, stages, prefix);
  if (!reach.fill(0, all)) return {};
  const double share = all / stages;
  const double most = bisect(all, share, [&](double value) { return reach.fill(0, value); });
  const double least = bisect(0, share, [&](double value) { return reach.fill(value, most); });
  reach.fill(least, most);
  std::vector<Partition> partitions;
  const auto add = [&](Partition partition) {
    if (std::ranges::count(partitions, partition) == 0) partitions.push_back(std::move(partition));
  };
  add(reach.walk([](std::span<const int> ends, int) { return ends.back(); }));
  add(reach.walk([](std::span<const int> ends, int) { return ends.front(); }));
  add(reach.walk([&](std::span<const int> ends, int stage) {
    const double here = prefix.front() + share * (stage + 1) + all * kRounding;
    const auto beyond = std::ranges::find_if(ends, [&](int end) { return prefix[at(end)] > here; });
    return beyond == ends.begin() ? *beyond : *(beyond - 1);
  }));
  return partitions;
}

std::vector<Partition> even_partitions(const SearchSpace& space, int stages, const Chain& chain) {
  std::vector<double> prefix;
  for (int k = 0; k <= chain.size(); ++k) prefix.push_back(chain.compute(0, k));
  return even_partitions(space, stages, prefix);
}

}  // namespace pp::plan
