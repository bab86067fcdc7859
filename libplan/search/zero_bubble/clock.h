// Makespan and steady period of orders, about twenty times faster than the simulator gives them, and the room
// that limits on micro-batches and on bytes leave, as one table per worker. Messages do not wait for each
// other's ports here; otherwise clock and simulator agree to rounding.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "libplan/search/zero_bubble/pipeline.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// What the search compares, in seconds.
struct OrderTimes {
  double makespan = std::numeric_limits<double>::infinity();  ///< infinite: the order deadlocks
  double period = std::numeric_limits<double>::infinity();    ///< as chained_period()
  double ends = 0;  ///< sum over workers of the end of their third step: how much slack an order leaves
};

/// Position of an operation in three chained steps.
struct Place {
  int step = 0;
  int worker = 0;
  int position = 0;
};

/// Times orders of one pipeline; keeps its buffers. O(operations) per order.
class OrderClock {
 public:
  explicit OrderClock(const Pipeline& pipeline);

  OrderTimes time(const Order& order);
  /// The operations of the order timed last that decide when step `steps` (1..3) ends, last first.
  std::vector<Place> critical_path(int steps) const;

 private:
  struct Worker {
    int step = 0;
    int position = 0;
    int forwards = 0, inputs = 0, weights = 0;  ///< done, over all steps
    double free = 0;
    int last = -1;  ///< operation that ran last
  };
  struct Start {
    double time = 0;
    int cause = -1;  ///< the operation waited for; -1: none
  };

  struct Output {
    double end = 0;
    int id = 0;  ///< of the operation
  };
  /// What ran of one kind: [stage][micro-batch over all steps].
  using Outputs = std::vector<std::vector<Output>>;

  bool advance(std::size_t w, const WorkerOrder& order);
  bool wait(const std::vector<Inlet>& inlets, int Worker::*done, const Outputs& outputs, const Worker& worker,
            Start& start) const;

  const Pipeline& pipeline_;
  const int per_worker_;  ///< operations of one step; ids go by step, worker, position
  std::vector<Worker> workers_;
  Outputs forwards_, inputs_;
  std::vector<int> causes_;                     ///< by operation
  std::vector<std::vector<double>> step_ends_;  ///< [step][worker], update included
};

struct ZeroBubbleRequest {
  /// Costs, edges, links, micro-batch sizes. Of `programs` everything but the lists (`workers` may be empty):
  /// worker s alone runs stage s, one synchronous step of `micro_batches`, with `skips`.
  SimulationInput pipeline;
  /// Per worker the micro-batches that it may hold from F to W; empty: no limit.
  std::vector<int> in_flight_limit;
  /// Per worker its peak as simulate() counts it (MemoryPeak::peak), weights included; empty: no limit.
  std::vector<Bytes> memory_limit;
  /// Moves the local search may try, its only measure of effort: the same request gives the same result. More
  /// than this hardly ever finds more; a search that meets its bounds stops by itself.
  int evaluations = 12000;
};

/// Checks the request and turns its limits into room. Throws pp::Error: usage when a stage has replicas, when
/// the placement is not straight or a limit holds less than one micro-batch; internal when a vector has the
/// wrong length.
std::vector<Room> make_rooms(const ZeroBubbleRequest& request);

}  // namespace pp::plan
