// What the stages of a schedule that places them cost and hold at least, whatever the order of its operations
// says: prunes what cannot win or cannot fit before anything is simulated.
#pragma once

#include <cstdint>
#include <vector>

#include "libplan/cost/stage_cost.h"
#include "libplan/cost/stage_memory.h"
#include "libplan/schedule/schedule.h"
#include "libplan/search/candidates/cases.h"

namespace pp::plan {

/// For searches over exactly the schedule's stages, one replica each. The case must outlive it.
class PlacedFloor : public StageCost {
 public:
  /// The floor of `pipelines` side by side, each with this schedule. `bytes`: of the largest device; `best`: of
  /// all links.
  PlacedFloor(const PlanCase& one, const Schedule& schedule, int pipelines, std::int64_t bytes,
              const Link& best);

  /// Seconds of a step with this stage: its worker runs the stage's share of the micro-batches, and the first
  /// stage updates only when a micro-batch has come to this stage, all have run there, and the last gradient
  /// has come back. Earlier stages wait for input gradients alone where the backward is split.
  double stage(int begin, int end, DeviceSpan span) const override;
  double cut(int, DeviceSpan, CutSide) const override { return 0; }
  /// Weights, gradients, optimizer state and the micro-batches that this stage, and every one in front of it,
  /// holds at the same time (with recompute: one), as if the worker had no other stage.
  bool fits(int begin, int end, DeviceSpan span) const override;
  /// Whether the workers together have room for what the stages keep of every micro-batch in flight to run it
  /// again: what comes over each cut, or what the layer behind it saves. O(layers log layers).
  bool has_room_again(const SearchSpace& space) const;

 private:
  const Chain& chain_;
  double PassTimes::*back_;            ///< what earlier stages wait for
  double turns_;                       ///< micro-batches of a stage's copy
  double whole_;                       ///< the way of one there and back, messages included
  std::vector<StageMemory> memories_;  ///< by stage, the last in front; empty: no limit
  double room_ = 0;                    ///< bytes of all workers
  double held_again_ = 0;  ///< micro-batches that every stage holds the inputs of, in the largest; 0: not known
};

}  // namespace pp::plan
