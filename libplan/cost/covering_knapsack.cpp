#include "libplan/cost/covering_knapsack.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "libplan/cost/constants.h"

namespace pp::plan {
namespace {

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
