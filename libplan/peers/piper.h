// The time-per-sample model of Piper (Tarnawski et al., "Piper: Multidimensional Planner for DNN
// Parallelization", NeurIPS'21, sec. 4 and 5). What Piper calls a sample is one micro-batch.
//
//   time(S, d, t) = ( sum p_v + 2 sum of c_e over edges that cross the border of S / bandwidth ) / d
//                   + 4 (d-1)/d sum w_v / (N bandwidth)          d replicas divide the N micro-batches of a
//                   batch
//   memory        = y sum A_v + sum B_v,   y = ceil(replicas of this and all later stages / d)
//
// t is the tensor-parallel degree: t devices run one replica together, p, A, B, w and c are those of one of
// them (PiperLayer), and the plan uses sum d t devices. A split layer is slower per device but keeps less, so
// that under a tight limit t > 1 wins. c_e holds what the sharing synchronises, at the end where it is done.
// Everything is added, every edge counts at both ends, fill and drain are left out. Each layer runs plain or
// recomputed; Piper takes the layers to recompute greedily by seconds per byte, `auto` chooses them exactly.
// A profile that is not imported from Piper's files knows t = 1: A is the saved bytes, or what the layer reads
// when it is recomputed (then p grows by the forward time), B the weights, gradients and buffers, c_e the
// output bytes.
#pragma once

#include "libplan/peers/input.h"

namespace pp::plan {

/// Over all down-sets, as the peer's dynamic program; over the six orders where there are too many.
std::variant<PeerPlan, Infeasible> plan_piper(const PeerInput& input, const PeerOptions& options);

}  // namespace pp::plan
