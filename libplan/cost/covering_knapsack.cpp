#include "libplan/search/peers/recompute_choice.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Cheapest seconds per byte first; equal items stand together.
void sort_by_rate(std::vector<RecomputeItem>& items) {
  std::sort(items.begin(), items.end(), [](const RecomputeItem& a, const RecomputeItem& b) {
    return std::tuple(a.seconds / a.bytes, a.bytes) < std::tuple(b.seconds / b.bytes, b.bytes);
  });
}

class Knapsack {
 public:
  explicit Knapsack(std::vector<RecomputeItem> items) : items_(std::move(items)) { sort_by_rate(items_); }

  double solve(double bytes) {
    visit(0, bytes, 0);
    return best_;
  }

 private:
  /// Seconds if the items from `next` on could be taken in part; infinity when they do not save enough.
  double relaxed(std::size_t next, double bytes) const {
    double seconds = 0;
    for (; bytes > 0; ++next) {
      if (next == items_.size()) return kInfinity;
      const double share = std::min(1.0, bytes / items_[next].bytes);
      seconds += share * items_[next].seconds;
      bytes -= items_[next].bytes;
    }
    return seconds;
  }

  void visit(std::size_t next, double bytes, double seconds) {
    if (seconds + relaxed(next, bytes) >= best_) return;
    if (bytes <= 0) {
      best_ = seconds;
      return;
    }
    const RecomputeItem item = items_[next];
    visit(next + 1, bytes - item.bytes, seconds + item.seconds);
    while (next < items_.size() && items_[next].bytes == item.bytes && items_[next].seconds == item.seconds)
      ++next;
    visit(next, bytes, seconds);
  }

  std::vector<RecomputeItem> items_;
  double best_ = kInfinity;
};

}  // namespace

double recompute_exactly(std::vector<RecomputeItem> items, double bytes) {
  return Knapsack(std::move(items)).solve(bytes);
}

double recompute_greedily(std::vector<RecomputeItem> items, double bytes) {
  sort_by_rate(items);
  double seconds = 0;
  for (const RecomputeItem& item : items) {
    if (bytes <= 0) break;
    seconds += item.seconds;
    bytes -= item.bytes;
  }
  return bytes > 0 ? kInfinity : seconds;
}

}  // namespace pp::plan
