// The least time that a stage needs to run forwards again so that it fits: what the searches add to its load.
#pragma once

#include <cstdint>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/stage_memory.h"

namespace pp::plan {

/// Chain and memory must outlive it.
class RecomputeTime {
 public:
  RecomputeTime(const Chain& chain, const StageMemory& memory);

  /// Seconds of one of the chain's micro-batches on one of `replicas`. When stages always run again the stage's
  /// forward. With `automatic` a lower bound: layers give back all they save, in part too, cheapest first, in
  /// at most 16 classes of about equal seconds per byte. Does not fall when the stage grows. O(1), `automatic`
  /// O(16).
  double seconds(int begin, int end, int replicas) const;
  /// How many of `count` micro-batches run again: the last may be left out, `one` of the chain's.
  double again(double count, double one = 1) const;

 private:
  struct Class {
    double seconds_per_byte = 0;      ///< of its cheapest layer
    std::vector<std::int64_t> saved;  ///< prefix sums over the positions
  };
  void make_classes();

  const Chain& chain_;
  const StageMemory& memory_;
  std::vector<Class> classes_;  ///< by seconds per byte
};

}  // namespace pp::plan
