// The all-reduce of a stage beside its last backward: a bucket's sum begins when its layers are through.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "libprofile/model/segment.h"
#include "librun/stage/stage.h"
#include "librun/transport/collectives.h"
#include "librun/worker/worker_state.h"

namespace pp::run {

/// Of one stage and step, whose group's sums overlap; observes the last backward (or weight gradient), if the
/// worker has one. Buckets as in PyTorch's DistributedDataParallel (Li et al., VLDB 2020), in the order of the
/// layers, which is the same on all replicas; they change no bit, because every element has its sum in replica
/// order.
class OverlappedSum final : public model::LayerObserver {
 public:
  /// `share`: what the gradient is multiplied by before. Where replicas divide the optimizer's state each gets
  /// the sum of its own slices alone (Stage::gradient_slices).
  OverlappedSum(Collectives& collectives, std::size_t group, WorkerId me, Stage& stage, double share = 1);

  void begin(int, Phase) override {}
  void end(int position, Phase) override;

  /// Waits until the stage's gradient is the sum over the replicas. Returns the seconds of the additions that
  /// were left to make.
  Seconds finish();

 private:
  void begin_down_to(int layer);

  Collectives& collectives_;
  std::size_t group_;
  WorkerId me_;
  Stage& stage_;
  double share_;
  std::vector<Slice> slices_;             ///< none: everybody gets the whole sum
  std::vector<FlatLayout::Bucket> left_;  ///< the next one last
  std::vector<std::unique_ptr<PendingSum>> begun_;
};

/// The sums of a worker's stages that are on their way, until their AR.
class ReplicaSums {
 public:
  /// Who begins them as the layers of the operation's backward are through.
  model::LayerObserver* begin(WorkerState& state, const Operation& operation, Stage& stage);
  /// As OverlappedSum::finish().
  Seconds finish(WorkerState& state, const Operation& operation, Stage& stage);

 private:
  OverlappedSum& sum_of(WorkerState& state, const Operation& operation, Stage& stage);

  std::map<StageId, OverlappedSum> sums_;
};

}  // namespace pp::run
