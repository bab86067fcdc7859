// Partitions whose stages take as equal times as they can, where the number of stages does not divide the
// layers: searches that count only the largest load, or loads and their sum, cannot tell them apart, but a
// schedule does.
#pragma once

#include <span>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/stage_cost.h"

namespace pp::plan {

/// Partitions into exactly `stages` stages of one device with the least largest time and, of these, the
/// greatest least time: the one with its long stages as far in front as possible, the one with them as far
/// back, and the one whose every stage ends at its equal share or just before it, each once. None when the cuts
/// of the space admit none, or beyond a million stages times layers. O(stages * layers).
std::vector<Partition> even_partitions(const SearchSpace& space, int stages, const Chain& chain);

/// The same from the seconds of the layers in front of each boundary.
std::vector<Partition> even_partitions(const SearchSpace& space, int stages, std::span<const double> prefix);

}  // namespace pp::plan
