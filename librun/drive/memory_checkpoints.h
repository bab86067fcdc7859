// Checkpoints in memory (--buddy): of each host its own ranks' parts in a folder there, and a second copy of
// them on the next host, so that all parts survive the loss of any one host.
#pragma once

#include <filesystem>
#include <optional>

#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/worker/job.h"

namespace pp::run {

/// Every rank has one. The first rank of each host makes checkpoints of what is in its folder, when rank 0 says
/// so. All but the constructor throw Stopped when the run is stopped.
class MemoryCheckpoints {
 public:
  /// Throws as CheckpointFolder does.
  MemoryCheckpoints(const RunOptions& options, const Placement& placement, std::optional<Step> resumed);

  const std::filesystem::path& path() const { return path_; }

  /// Every rank, at the same step: its parts, which are in the folder, to a rank of the next host; those of
  /// another rank come from the host before. None where they could not be written. Throws pp::Error (run) where
  /// the copies cannot be written here.
  void exchange(const Job& job, Step step, const std::vector<CheckpointPart>& mine);

  /// Rank 0, when all ranks have exchanged, any number of the following and then release(). On every host the
  /// same; throw pp::Error (run) with the first host's reason. Of commit(), copy() and clear() as
  /// CheckpointFolder says; copy() is one into `disk`, which all hosts share.
  std::int64_t commit(const Job& job, const Manifest& manifest, Step step);
  void discard(const Job& job, Step step);
  void copy(const Job& job, Step of, CheckpointFolder& disk);
  void clear(const Job& job);
  void release(const Job& job);

  /// Every other rank after its exchange(): does what rank 0 says until it is released.
  void follow(const Job& job);

 private:
  struct Order;

  /// Here.
  std::int64_t execute(const Order& order);
  /// Here and on the other hosts.
  std::int64_t execute_everywhere(const Job& job, const Order& order);
  std::vector<int> other_leaders() const;

  std::filesystem::path path_, disk_;
  Placement placement_;
  std::optional<CheckpointFolder> folder_;  ///< of a host's first rank
};

}  // namespace pp::run
