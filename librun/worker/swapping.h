// A worker whose stages live on the host: which are on its device, and what its operations hand to each other.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "librun/swap/swapper.h"
#include "librun/worker/worker_state.h"

namespace pp::run {

class Swapping {
 public:
  /// `state` must outlive it.
  explicit Swapping(WorkerState& state);

  const profile::MemoryAccount& host() const { return swapper_.host(); }
  void adopt(StageId id, Stage& stage) { swapper_.adopt(id, stage, state_.trained); }
  /// Whether loads from now on are counted: a range of training.
  void count(bool counts) { swapper_.count(counts); }

  /// Before an operation. Those of a task that follow each other on one micro-batch hand over on the device.
  void make_ready(const plan::Op& op);
  /// With what an update needs, or without. `waits`: until it is there.
  void load(StageId id, std::int64_t updates, Stage::Hold hold, bool waits);
  /// Stages that are updated go back, once; weights that have not changed are dropped.
  void updated(StageId id, std::int64_t updates) { unwritten_[id] = updates; }
  void write_back(StageId id);
  void evict(StageId id);

  /// What an operation of this worker makes for another of its own; and takes, as input or gradient `tensor`.
  void put(const Shelf::Key& key, at::Tensor tensor) { shelf_.put(key, std::move(tensor)); }
  at::Tensor take(const Shelf::Key& key, std::size_t tensor);
  /// The inputs of a forward that runs again go to the host; come back.
  void stash(Turn& turn);
  void unstash(Turn& turn);

  /// Whose state of the snapshots is this worker's.
  bool hands_in(StageId id) const;
  std::vector<Stage::LayerState> snapshot(StageId id, Stage& stage);

 private:
  Stage& stage(StageId id) { return state_.stages.at(id); }

  WorkerState& state_;
  Swapper swapper_;
  Shelf shelf_;
  std::map<StageId, Step> unwritten_;  ///< updated stages that have not begun to go back: after so many updates
  std::optional<int> micro_batch_;     ///< of the operation before; none: it had none
  std::map<std::size_t, at::Tensor>
      inputs_on_host_;  ///< of the forward that runs; missing: they have not been there
};

}  // namespace pp::run
