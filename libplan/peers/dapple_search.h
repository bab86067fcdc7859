// The least latency of DAPPLE's model over pipelines on consecutive devices.
#pragma once

#include "libplan/peers/dapple_cost.h"

namespace pp::plan {

struct DappleBest {
  double latency = 0;
  DapplePipeline pipeline;
};

/// Improves on `best`, whose latency bounds the search, if any pipeline does: with one copy, stages of any
/// number of devices, not necessarily all; with more, stages of exactly `copies` devices, all of them used. At
/// most as many stages as each copy has micro-batches. Exact.
void search_dapple(const DappleCosts& costs, int copies, DappleBest& best);

}  // namespace pp::plan
