// What becomes of snapshots: checkpoints, and at the end the file of weights.
#pragma once

#include <optional>
#include <vector>

#include "libprofile/core/file.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/report/report.h"
#include "librun/worker/job.h"
#include "librun/worker/record.h"

namespace pp::run {

/// What a rank's workers bring to a snapshot: their part of a checkpoint is written, the rest is for the file
/// of weights.
struct Share {
  Step step = 0;
  bool last = false;
  Seconds pause{};
  std::vector<CheckpointPart> parts = {};
  std::vector<Stage::LayerState> layers = {};
};

/// Used by one thread at a time.
class Saver {
 public:
  /// Of the process that drives, or of another rank. Opens what will be written, so that a place that cannot be
  /// written is found before the long work. Throws pp::Error (usage).
  Saver(const RunOptions& options, const Setup& setup);

  /// Throws pp::Error (run): what was written before stays.
  Share write_share(const Job& job, Snapshot snapshot);
  /// With the shares of all ranks.
  void save(const Job& job, const Position& position, std::vector<Share> shares);

  /// Nothing without checkpoints.
  std::optional<CheckpointsReport> report() const;

 private:
  template <class Body>
  void with_remedy(const Job& job, Step step, Body&& body);
  void commit(const Manifest& manifest, const std::vector<Share>& shares);

  std::optional<AtomicFile> weights_;       ///< of the process that drives
  std::optional<CheckpointFolder> folder_;  ///< the same
  Step written_;                            ///< the last checkpoint that this rank wrote its part of
  Step saved_;                              ///< of the last checkpoint, or the one that was resumed
  Coordinator::Clock::time_point begun_{};  ///< when this rank began with it
  Bytes size_;
  TimeSample pauses_, writes_;
};

}  // namespace pp::run
