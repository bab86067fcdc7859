// The latency by which DAPPLE's released planner compares plans (Fan et al., "DAPPLE: A Pipelined Data Parallel
// Approach for Training Large Models", PPoPP'21, sec. 4).
#pragma once

#include <vector>

#include "libplan/cost/chain.h"
#include "libprofile/core/index.h"

namespace pp::plan {

/// Servers of equal size; device d stands in server d / per_server.
struct DappleMachine {
  int servers = 1;
  int per_server = 1;
  int devices() const { return servers * per_server; }
  int server(int device) const { return device / per_server; }
};

struct DapplePipeline {
  std::vector<int> cuts;                  ///< boundaries, ascending
  std::vector<std::vector<int>> devices;  ///< per stage, of all copies together
  int copies = 1;                         ///< of the whole pipeline
};

/// Seconds per byte of a ring over `devices`: 3e9 bytes/s between servers; inside one 25e9 times half the
/// devices.
double all_reduce_per_byte(const DappleMachine& machine, const std::vector<int>& devices);
/// Seconds per byte between two stages. Receivers inside one server: the senders' share from outside at 1e9
/// bytes/s, or 25e9 when all are inside; receivers in several servers: 3e9.
double transfer_per_byte(const DappleMachine& machine, const std::vector<int>& from,
                         const std::vector<int>& to);

/// One layer order at the global batch: times and activations of the profile times `batches`, the number of
/// profiled batches in it, which is also the number of micro-batches of a single copy.
struct DappleCosts {
  const Chain& chain;
  DappleMachine machine;
  int batches = 1;

  double compute(int begin, int end) const { return batches * chain.compute(begin, end); }
  double activation(int cut) const { return batches * chain.cut_activation[at(cut)]; }
  /// Reduced with a stage: also the weights of the next stage's first layer, which the released code counts
  /// twice.
  double reduced_bytes(int begin, int end) const;
  /// Seconds of one step. Kept as released: fill and drain are not divided by a stage's replicas, stage s hides
  /// s blocks of its all-reduce, memory is not tested.
  double latency(const DapplePipeline& pipeline) const;
};

}  // namespace pp::plan
