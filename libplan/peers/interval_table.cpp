#include "libplan/peers/interval_table.h"

#include <algorithm>
#include <span>

#include "libplan/cost/constants.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// A last stage: its begin and machines.
struct Split {
  int begin = 0;
  int machines = 0;
};

/// Fills the table end by end, and for each end from the shortest interval to the longest.
class Filler {
 public:
  Filler(const IntervalSpace& space, const IntervalCost& cost, std::vector<double>& values)
      : space_(space),
        cost_(cost),
        width_(at(space.layers + 1)),
        values_(values),
        ahead_(values.size(), kInfinity) {
    last_.resize(at(space.machines) * width_);
    least_last_.resize(last_.size());
    least_used_.resize(last_.size());
    chosen_.resize(at(space.machines + 1) * width_);
  }

  void run() {
    for (int end = 1; end <= space_.layers; ++end) {
      price_last_stages(end);
      const int last_start = space_.all_starts ? end - 1 : 0;
      for (int begin = last_start; begin >= 0; --begin) {
        for (int machines = 1; machines <= space_.machines; ++machines) solve(begin, end, machines);
      }
    }
  }

 private:
  std::span<double> row(std::vector<double>& table, int begin, int machines) const {
    const int starts = space_.all_starts ? space_.layers : 1;
    return {table.data() + at((machines - 1) * starts + begin) * width_, width_};
  }
  std::size_t stage(int machines, int begin) const { return at(machines) * width_ + at(begin); }

  /// Of every stage that ends here, and the least over its begin and all before it: falls with the begin.
  void price_last_stages(int end) {
    for (int q = 1; q < space_.machines; ++q) {
      double least = kInfinity;
      for (int begin = 1; begin < end; ++begin) {
        const std::size_t here = stage(q, begin);
        last_[here] = cost_.last(begin, end, q);
        least_last_[here] = least = std::min(least, last_[here]);
        least_used_[here] = cost_.least_used(begin, end, q);
      }
    }
  }

  void solve(int begin, int end, int machines) {
    best_ = std::min(space_.bound, cost_.whole(begin, end, machines));
    split_ = {};
    // The splits of the intervals one shorter on either side are rarely far off.
    for (const int neighbour : {begin, begin + 1}) {
      const Split& known = chosen_[stage(machines, neighbour)];
      if (known.begin > begin) try_split(begin, machines, known);
    }
    for (int q = 1; q < machines; ++q) search(begin, end, machines, q);
    chosen_[stage(machines, begin)] = split_;
    append(begin, end, machines, best_ < space_.bound ? best_ : kInfinity);
  }

  void try_split(int begin, int machines, const Split& split) {
    const std::size_t here = stage(split.machines, split.begin);
    const double value = std::max(row(values_, begin, machines - split.machines)[at(split.begin)], last_[here]);
    if (value >= best_ || least_used_[here] > machines) return;
    best_ = value;
    split_ = split;
  }

  /// Splits in front of the first possible one have too slow a last stage, those behind the last too slow a
  /// front.
  void search(int begin, int end, int machines, int q) {
    const double* last = least_last_.data() + stage(q, 0);
    const std::span<const double> ahead = row(ahead_, begin, machines - q);
    const double* first =
        std::partition_point(last + begin + 1, last + end, [&](double least) { return least >= best_; });
    for (int split = static_cast<int>(first - last); split < end && ahead[at(split)] < best_; ++split) {
      try_split(begin, machines, {split, q});
    }
  }

  /// `ahead_` is the least value of all longer intervals so far: it rises with the end.
  void append(int begin, int end, int machines, double value) {
    row(values_, begin, machines)[at(end)] = value;
    const std::span<double> ahead = row(ahead_, begin, machines);
    for (int shorter = end; shorter > begin && ahead[at(shorter)] > value; --shorter)
      ahead[at(shorter)] = value;
  }

  const IntervalSpace& space_;
  const IntervalCost& cost_;
  std::size_t width_;
  std::vector<double>& values_;
  std::vector<double> ahead_;              ///< as values_
  std::vector<double> last_, least_last_;  ///< by machines and begin, of the current end
  std::vector<int> least_used_;            ///< the same
  std::vector<Split> chosen_;              ///< by machines and begin, of the longest interval so far
  double best_ = kInfinity;
  Split split_;
};

}  // namespace

IntervalTable::IntervalTable(const IntervalSpace& space, const IntervalCost& cost)
    : layers_(space.layers), starts_(space.all_starts ? space.layers : 1) {
  values_.assign(at(space.machines) * at(starts_) * at(layers_ + 1), kInfinity);
  Filler(space, cost, values_).run();
}

}  // namespace pp::plan
