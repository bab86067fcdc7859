// What becomes of snapshots: checkpoints, and at the end the file of weights.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/weight_output.h"
#include "librun/report/record.h"
#include "librun/report/report.h"
#include "librun/worker/job.h"

namespace pp::run {

/// What a rank's workers bring to a snapshot: their part of a checkpoint is written, the rest is for the file
/// of weights.
struct CheckpointShare {
  Step step = 0;
  bool last = false;
  Seconds pause{};
  std::vector<CheckpointPart> parts = {};
  std::string failure = {};  ///< why parts could not be written; empty: they are, or none are wanted
  std::vector<Stage::LayerState> layers = {};
};

/// Used by one thread at a time, but for failures().
class Saver {
 public:
  /// Of the process that drives, or of another rank. Opens what will be written, so that a place that cannot be
  /// written is found before the long work. Throws pp::Error (usage).
  Saver(const RunOptions& options, DType dtype, const Setup& setup);

  /// A part that cannot be written is the share's failure.
  CheckpointShare write_share(const Job& job, Snapshot snapshot);
  /// With the shares of all ranks. What cannot be written is a failure: the training goes on without it, and
  /// what was written before stays. Throws pp::Error (run) where checkpoints can never come about.
  void save(const Job& job, const Position& position, std::vector<CheckpointShare> shares);

  /// Any thread: what could not be written so far, each with the reason and the remedy.
  std::vector<std::string> failures() const;

  /// Nothing without checkpoints.
  std::optional<CheckpointsReport> report() const;

 private:
  /// Whether a rank among others writes a part at that step.
  bool writes(const Job& job, Step step) const;
  void fail(std::string why);
  void commit(const Job& job, const Manifest& manifest, const std::vector<CheckpointShare>& shares);
  /// Those of the model, and all that the module's state_dict has besides.
  void write_weights(Step step, NamedTensors tensors);
  /// Those of the best checkpoint. Throws pp::Error (run).
  void write_best(const Position& position);
  std::string last_whole() const;

  Metadata further_;                        ///< of the process that drives: further_state() of the start
  NamedTensors kept_;                       ///< values of its `kept`
  std::optional<WeightOutput> weights_;     ///< of the process that drives
  std::optional<CheckpointFolder> folder_;  ///< the same
  Start start_;
  Step saved_;                              ///< of the last checkpoint, or the one that was resumed
  Coordinator::Clock::time_point begun_{};  ///< when this rank began with it
  Bytes size_;
  TimeSample pauses_, writes_;
  mutable std::mutex mutex_;  ///< of what follows
  std::vector<std::string> failures_;
};

}  // namespace pp::run
