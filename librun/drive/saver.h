// What becomes of snapshots: checkpoints, and at the end the file of weights.
#pragma once

#include <optional>

#include "libprofile/core/file.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/report/report.h"
#include "librun/worker/job.h"
#include "librun/worker/record.h"

namespace pp::run {

/// Used by one thread at a time.
class Saver {
 public:
  /// Opens what will be written, so that a place that cannot be written is found before the long work. Throws
  /// pp::Error (usage).
  Saver(const RunOptions& options, const Start& start);

  /// Throws pp::Error (run): what was written before stays.
  void save(const Job& job, Snapshot snapshot);

  /// Nothing without checkpoints.
  std::optional<CheckpointsReport> report() const;

 private:
  void checkpoint(const Job& job, const Snapshot& snapshot, const TrainingState& state);

  std::optional<AtomicFile> weights_;
  std::optional<CheckpointFolder> folder_;
  Step saved_;  ///< of the last checkpoint, or the one that was resumed
  Bytes size_;
  TimeSample pauses_, writes_;
};

}  // namespace pp::run
