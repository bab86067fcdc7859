// What a worker and its rank do while messages are on their way: one thread computes, another one moves
// messages on. For measurements.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "libprofile/core/units.h"
#include "librun/threads/threads.h"
#include "librun/transport/peers.h"

namespace pp::run {

/// Processor time of the calling thread.
Seconds spent_here();

/// Moves messages on as pp-run's second thread does, until it is destroyed.
class Mover {
 public:
  explicit Mover(Peers& peers);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  /// Its processor time up to its last look.
  Seconds spent() const { return spent_; }

 private:
  void serve() noexcept;

  Peers& peers_;
  std::atomic<bool> ended_ = false;
  std::atomic<Seconds> spent_ = Seconds(0);
  Threads thread_;
};

/// A computation on numbers that stay in the innermost cache, as long as asked for in processor time.
class Computation {
 public:
  Computation();
  void run(Seconds time);

 private:
  void run(long rounds);

  std::vector<float> numbers_;
  double per_second_ = 0;
  volatile float sink_ = 0;
};

}  // namespace pp::run
