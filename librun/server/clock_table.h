// How many mini-batches each replica has finished: what bounds how far one runs ahead of the slowest (stale
// synchronous parallel, Ho et al., NIPS 2013). Free of Torch; not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "librun/data/order.h"

namespace pp::run {

class ClockTable {
 public:
  /// `bound`: mini-batches that a replica may be ahead of the slowest one when it begins with another; 0: all
  /// of them go in step.
  ClockTable(int replicas, Step bound) : clocks_(static_cast<std::size_t>(replicas)), bound_(bound) {}

  int replicas() const { return static_cast<int>(clocks_.size()); }
  Step of(int replica) const { return clocks_[static_cast<std::size_t>(replica)]; }
  Step least() const { return std::ranges::min(clocks_); }
  /// Whether the replica may begin with its next mini-batch.
  bool may_begin(int replica) const { return of(replica) - least() <= bound_; }
  void begin(int replica) { widest_ = std::max(widest_, of(replica) - least()); }
  /// It has finished one.
  void tick(int replica) { ++clocks_[static_cast<std::size_t>(replica)]; }
  /// The furthest that a replica was ahead of the slowest when it began.
  Step widest() const { return widest_; }

 private:
  std::vector<Step> clocks_;
  Step bound_;
  Step widest_ = 0;
};

}  // namespace pp::run
