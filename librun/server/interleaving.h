// In which order replicas come to their server when a seed decides it, so that an asynchronous training can be
// repeated bit by bit. Free of Torch; not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "librun/server/clock_table.h"

namespace pp::run {

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
