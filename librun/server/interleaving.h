// In which order replicas come to their server when a seed decides it, so that an asynchronous training can
// be repeated bit by bit; and how many mini-batches each has finished, which bounds how far one runs ahead
// of the slowest (stale synchronous parallel, Ho et al., NIPS 2013). Free of Torch; not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "libprofile/core/units.h"
#include "librun/data/order.h"

namespace pp::run {

/// How far apart replicas were, and what they brought and took.
struct ServerFigures {
  std::int64_t updates = 0;        ///< mini-batches that replicas have finished
  std::int64_t stale = 0;          ///< those of others between a begin and its end, over all updates
  std::int64_t largest_stale = 0;  ///< of one update
  std::int64_t largest_lead = 0;   ///< mini-batches that a replica was ahead of the slowest when it began
  Bytes pushed, fetched;           ///< of all replicas, by memory or by messages
};

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

/// A replica comes to the server in turn to begin a mini-batch and to finish it. Whose turn is next is drawn
/// from those that may come: who may not begin is left out until it may. So the order depends on the seed, the
/// clocks and how many mini-batches each has, never on how fast anybody is.
class Interleaving {
 public:
  /// `step`: with which they begin; draws depend on it and on nothing before it, so that a training that is
  /// resumed there goes on with the same.
  Interleaving(std::uint64_t seed, int replicas, Step step = 0);

  /// Whose turn it is; none when all have left.
  static constexpr int kNobody = -1;
  int turn() const { return turn_; }
  /// Who had the turn has used it.
  void pass(const ClockTable& clocks);
  /// The replica has no mini-batch left; behind its last turn. Who leaves may be drawn once more, and is passed
  /// over then.
  void leave(int replica, const ClockTable& clocks);
  /// All have left; they begin anew with `step`.
  void restart(Step step, const ClockTable& clocks);

 private:
  struct State {
    bool within = false;  ///< a mini-batch: it finishes it in its next turn
    bool left = false;
    bool passed_over = false;
  };
  void draw(const ClockTable& clocks);

  std::uint64_t seed_, state_ = 0;
  std::vector<State> replicas_;
  int turn_ = kNobody;
};

}  // namespace pp::run
