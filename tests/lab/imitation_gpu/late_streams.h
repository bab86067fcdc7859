// When the work of streams is done: at once, or as late as their order allows. Plain C++, no CUDA.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "tests/lab/imitation_gpu/race_detector.h"

namespace pp::test::gpu {

/// Of the legal orders of the same work, three that are far from each other.
enum class Order {
  at_once,  ///< when it is handed over
  late,     ///< when the host waits for it, and nothing else is done then
  last,     ///< likewise, but first all other streams go on as far as they can without it
};

/// A place in a stream.
struct Mark {
  Stream stream = 0;
  bool reached = false;
  std::chrono::steady_clock::time_point when = {};  ///< once it is reached
};

/// All members may be called from any thread; one piece of work is done at a time, by a thread that waits. A
/// piece must not use this object. What it throws comes out of the call that waits.
class LateStreams {
 public:
  explicit LateStreams(Order order) : order_(order) {}

  Order order() const { return order_; }
  void hand_over(Stream stream, std::function<void()> run);
  std::shared_ptr<Mark> record(Stream stream);
  /// Later work of `stream` is done after the mark is reached.
  void wait(Stream stream, std::shared_ptr<Mark> mark);
  bool is_reached(const Mark& mark) const;
  /// Return when the mark is reached; when all that `stream` has been handed is done.
  void finish(const Mark& mark);
  void finish(Stream stream);

 private:
  struct Item {
    std::function<void()> run = {};
    std::shared_ptr<Mark> reaches = {}, waits = {};  ///< at most one of the three is set
  };

  void finish_locked(const Mark& mark);
  bool reach(const Mark& mark, Stream without);
  bool do_next(std::deque<Item>& queue, Stream without);

  Order order_;
  mutable std::mutex mutex_;
  std::map<Stream, std::deque<Item>> queues_;
};

}  // namespace pp::test::gpu
