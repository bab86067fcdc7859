// What a zero-bubble search is asked for, and the room its limits leave: limits on micro-batches and on bytes
// become one table per worker.
#pragma once

#include <vector>

#include "libplan/search/zero_bubble/order.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

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
