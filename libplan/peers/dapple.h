// DAPPLE's planner under its own latency (Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training
// Large Models", PPoPP'21, sec. 4; devices of a stage: 4.2).
//
// `released` looks at what the released planner compares: two stages at every cut, every share of the devices
// and every placement; pipelines without replicas over all devices, and over two with copies of the whole, cut
// for the smallest largest stage; one stage. `auto` adds every pipeline of at most as many stages as
// micro-batches whose stages take consecutive devices, server by server, and every number of equal copies of a
// pipeline without replicas, each exactly.
#pragma once

#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/peers/input.h"
#include "libprofile/core/index.h"

namespace pp::plan {

/// Throws pp::Error (usage) unless the mini-batch is a multiple of the profile's batch. Layer orders as for
/// PipeDream. auto: label setting over (boundary, devices used, replicas of the last stage, stages), labels
/// above the best known latency are dropped.
std::variant<PeerPlan, Infeasible> plan_dapple(const PeerInput& input, const PeerOptions& options);

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

struct DappleBest {
  double latency = 0;
  DapplePipeline pipeline;
};

/// Improves on `best`, whose latency bounds the search, if any pipeline does: with one copy, stages of any
/// number of devices, not necessarily all; with more, stages of exactly `copies` devices, all of them used. At
/// most as many stages as each copy has micro-batches. Exact.
void search_dapple(const DappleCosts& costs, int copies, DappleBest& best);

/// Each of `count` devices out of those that are not `occupied`, by the three policies: FreshFirst (whole
/// servers that are still empty), AppendFirst (servers in use), ScatterFirst (one device per server and round).
/// A policy that does not find enough devices gives nothing; equal sets are given once, in that order. Devices
/// ascend.
std::vector<std::vector<int>> placements(const DappleMachine& machine, const std::vector<char>& occupied,
                                         int count);

}  // namespace pp::plan
