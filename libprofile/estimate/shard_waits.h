// What a model's layers wait for weights that other members of a group hold, and for sums of their gradients,
// when computing and moving are two queues.
#pragma once

#include <span>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/profile.h"
#include "libprofile/estimate/device_spec.h"
#include "libprofile/estimate/two_queues.h"

namespace pp::profile {

/// Layers [begin, end) that are gathered and whose gradients are reduced together, as FSDP wraps them: a block,
/// or what stands before, between or behind blocks.
struct ShardUnit {
  int begin = 0, end = 0;
  bool block = false;
  int first_backward = -1;  ///< the first layer that has a backward; -1: none has
  double gathered = 0;      ///< bytes of all its weights, of which a member holds 1 / degree
  double gradients = 0;     ///< bytes of their gradients, in the weights' type
  double reduced = 0;       ///< bytes of these as they are sent

  /// Whether its weights stay gathered between passes: those of no block do, as of FSDP's root.
  bool stays(Sharding sharding) const { return !block || sharding == Sharding::gradients; }
};

/// Bytes that are sent of a byte of gradients: they are summed in float32 where the trainer says so.
double sent_of_gradients(const TrainerSpec& trainer, DType dtype);

/// `weights`, `trained`: bytes of each layer's parameters before they are divided. `sent`: as
/// sent_of_gradients() has it.
std::vector<ShardUnit> shard_units(const ResolvedModel& model, std::span<const double> weights,
                                   std::span<const double> trained, double sent);

struct ShardWays {
  ShardGroup group;
  Link link;              ///< of each member, with all others sending
  bool again = false;     ///< blocks run their forward again in their backward, on weights gathered once
  double contention = 0;  ///< as TrainerSpec has it
};

/// Per layer, what its passes are longer. Computing stands still for `contention` of the time that the unit's
/// own moving takes, at most its own time. A unit's weights arrive while the one before computes, two units are
/// held at most; its gradients leave while the next computes. What does not stay is gathered again in the
/// backward. A gather of x bytes over q members takes (q - 1) / q x / bandwidth, a reduction of gradients as
/// long (rings; NCCL), and log2(q) latencies each. Units go in the layers' order in the backward, too:
/// layer_times() says why. O(layers).
std::vector<LayerTime> shard_waits(std::span<const LayerTime> times, std::span<const ShardUnit> units,
                                   const ShardWays& ways);

}  // namespace pp::profile
