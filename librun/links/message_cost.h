// What messages keep the devices at their ends from: LogP's overhead o, and LogGP's view of it as a line over
// the sizes (Alexandrov et al., SPAA 1995). Each end computes for a while, once alone and once while messages
// go from the one to the other, which a second thread moves on as pp-run's does. By how much the processor time
// of both threads grows, by message, is what one keeps that end from its work; the end that it keeps longer
// counts. Processor time, since others on the machine take none of it.
// What a worker and its rank do while messages are on their way: one thread computes, another one moves
// messages on. For measurements.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "libprofile/core/cluster.h"
#include "libprofile/core/units.h"
#include "librun/threads/threads.h"
#include "librun/transport/peers.h"

namespace pp::run {

struct KeptTime {
  Bytes size;
  Seconds time{};  ///< of a message; below 0 where it is less than the machine's noise
};

/// A few of the sizes of a sweep, from the smallest to the largest.
bool is_tried(std::size_t index, std::size_t sizes);

/// Both ranks of a pair call it, the other's number in `other`; the first one sends. `transfer`: what a message
/// takes when nobody computes; that of the first one counts.
KeptTime measure_kept(Peers& peers, int other, bool first, Bytes size, Seconds transfer);

/// What two messages take that the ends send each other at once, until both are there: on the first one. Both
/// ranks of a pair call it.
Seconds measure_both_ways(Peers& peers, int other, bool first, Bytes size, int repetitions);

/// message_cost and overlap of a level, whose bandwidth and samples are known, by a line through the kept
/// times, each against its message's own time. Needs two sizes; otherwise the level stays as it is.
void set_message_cost(Level& level, std::span<const KeptTime> kept);

/// How many times as long as one message two at once take, at most, between ends that are full duplex.
inline constexpr double kFullDuplex = 1.5;

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
