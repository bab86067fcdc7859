// Equal replicas on whole nodes do the same side by side: the simulator is given those of a few nodes, which
// stand for all.
#pragma once

#include <optional>
#include <vector>

#include "libplan/price/pricing.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// Of equal replicas those that are simulated, ascending; all where that would be no fewer.
/// Micro-batches go round robin, so the first replicas may have one more: of the nodes whose replicas all have
/// it, of those whose have not, and of the one between them one each, two at least. Without nodes a replica is
/// one.
std::vector<int> kept_lanes(int replicas, int micro_batches, const Cluster& cluster);

struct Lanes {
  Assignment few;               ///< of the kept replicas alone, their micro-batches numbered anew
  std::vector<int> stands_for;  ///< per worker of the whole, the worker of `few` that does the same
};

/// Nothing where fewer would be no less, or replicas may not do the same: unequal numbers of them, stages that
/// share a node, more than two levels, streams. Micro-batches must be equal. O(operations).
std::optional<Lanes> few_lanes(const Assignment& whole, const Cluster& cluster);

}  // namespace pp::plan
