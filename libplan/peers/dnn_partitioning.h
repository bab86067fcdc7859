// The load model of dnn-partitioning (Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph
// Operators", NeurIPS'20, sec. 4): accelerators without replicas that talk through host memory.
//
//   load(S) = sum of the times of S + sum of transfer(u) over tensors u with their producer or a reader, but
//   not
//             all of them, in S          memory(S) = sum of the sizes of S; one copy, whatever is in flight
//
// Ours: no CPU devices; a forward layer and its backward twin are one layer. A profile that is not imported
// from the peer's files has no transfer times: bytes over the bandwidth stand in, and `saved` plus parameters
// for the size.
#pragma once

#include "libplan/peers/input.h"

namespace pp::plan {

/// Exact over all down-sets, as the peer's dynamic program; over the six orders where there are too many. Both
/// strategies search the same.
std::variant<PeerPlan, Infeasible> plan_dnn_partitioning(const PeerInput& input, const PeerOptions& options);

}  // namespace pp::plan
