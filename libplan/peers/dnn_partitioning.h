// The load model of dnn-partitioning (Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph
// Operators", NeurIPS'20, sec. 4): accelerators without replicas that talk through host memory.
//
//   load(S) = sum of the times of S + sum of transfer(u) over tensors u with their producer or a reader, but
//   not
//             all of them, in S          memory(S) = sum of the sizes of S; one copy, whatever is in flight
//
// Ours: no CPU devices; a forward layer and its backward twin are one layer. A profile that is not imported
// from the peer's files has no transfer times: bytes over the bandwidth stand in, and `saved` plus parameters
// for the size. The peer's JSON graphs have nodes with latencies in ms and sizes in bytes, and edges with the
// ms that a full transfer of their producer's output takes.
#pragma once

#include <string_view>

#include "libplan/peers/input.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// Exact over all down-sets, as the peer's dynamic program; over the six orders where there are too many. Both
/// strategies search the same.
std::variant<PeerPlan, Infeasible> plan_dnn_partitioning(const PeerInput& input, const PeerOptions& options);

/// Nodes of one `colorClass` (a forward node and its backward twin) become one opaque layer `node<id>`, named
/// after its first forward node: forward and backward time are the sums of `fpgaLatency`, `saved` the sum of
/// `size`. The transfers become `transfer_s` (to the layer's consumers) and `gradient_transfer_s` (to its
/// producers); where backward edges run like the forward ones, both are part of `transfer_s`. The order is that
/// of the forward edges. `maxSizePerFPGA` is the device's memory; CPUs, an edge's `size` and
/// undocumented keys are ignored. Throws pp::Error (data) with the JSON pointer: duplicate ids, unknown nodes,
/// cycles, edges of one producer with unequal costs, backward edges without a forward one beside them, nodes
/// that accelerators do not support.
Profile import_dnn_partitioning(std::string_view text, std::string_view name, int batch_size);

}  // namespace pp::plan
