// Whether ranks train on the same samples: each hashes what the steps of its first epoch read, in a thread of
// its own while it trains, and rank 0 compares. Free of Torch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "librun/data/order.h"
#include "librun/data/records.h"
#include "librun/threads/coordinator.h"
#include "librun/threads/threads.h"

namespace pp::run {

/// Which samples, in which order.
struct DigestedData {
  SampleTable table;
  EpochShape epoch;
  Step first = 0, end = 0;  ///< steps, at most an epoch of them
  std::uint64_t seed = 0;
  bool shuffle = true;
};

/// Reads and hashes in the background. Calls `tell(step, digest)` from its thread every 16 steps and behind the
/// last one: the samples of all steps below `step`, all inputs and targets, as stored. Stops the run where they
/// cannot be read.
class DataDigests {
 public:
  using Tell = std::function<void(Step step, const std::string& digest)>;

  /// `run` must outlive it. Throws pp::Error (run) when no thread can be started.
  DataDigests(Coordinator& run, DigestedData data, Tell tell);
  ~DataDigests();
  DataDigests(const DataDigests&) = delete;
  DataDigests& operator=(const DataDigests&) = delete;

  /// Returns when all has been hashed, or soon after stop() and after a stop of the run.
  void join() { thread_.join(); }
  void stop() { stopped_ = true; }

 private:
  void hash();

  Coordinator& run_;
  DigestedData data_;
  Tell tell_;
  std::atomic<bool> stopped_ = false;
  Threads thread_;
};

/// What rank 0 knows of all ranks' digests.
class DigestTable {
 public:
  explicit DigestTable(std::size_t ranks) : of_rank_(ranks) {}

  /// The rank whose samples below `step` differ from rank 0's, as soon as both are known.
  std::optional<int> enter(int rank, Step step, std::string digest);

 private:
  std::vector<std::map<Step, std::string>> of_rank_;
};

}  // namespace pp::run
