// Computing in the background of threads that need the same cores, without a lower priority: a thread that has
// one is also slow to end, and a process ends with its last thread. Free of Torch.
#pragma once

#include <functional>

#include "libprofile/core/units.h"

namespace pp::run {

/// Of one thread.
class BackgroundWork {
 public:
  struct Clocks {
    std::function<Seconds()> wall;
    std::function<Seconds()> computed;  ///< by the calling thread, since any moment
    std::function<void(Seconds)> sleep;
  };
  static Clocks of_thread();

  explicit BackgroundWork(Clocks clocks = of_thread());

  /// Calls `work`, which waits for nothing but a core. Where it had to wait for that, others compute there.
  /// Then the thread leaves the core to them for 30 times as long as it has computed since it did so before,
  /// for half a second at most. Alone on its core it is never kept.
  void compute(const std::function<void()>& work);

 private:
  Clocks clocks_;
  Seconds left_at_;  ///< computed by then
};

}  // namespace pp::run
