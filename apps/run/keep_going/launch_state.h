// What passes between `pp-run launch --keep-going` and the ranks that it starts: files in a folder that all of
// them see, so that launcher and ranks may stand on different hosts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "librun/report/lost_attempt.h"

namespace pp::run_tool {

/// What a training says of its devices.
struct ToldSpeeds {
  std::vector<double> factors;  ///< of each worker's: its work takes so many times as long as promised
  std::int64_t steps = 0;       ///< of the whole training
};

/// The launcher's side.
class LaunchState {
 public:
  /// Makes the folder. Throws pp::Error (usage) where it cannot be written.
  explicit LaunchState(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// Before a start, which goes on from `first_step`. `earlier`: those before it, lost or stopped.
  void begin(std::int64_t first_step, const std::vector<run::LostAttempt>& earlier) const;
  /// Updates since the beginning of the training.
  std::int64_t step() const;
  /// A rank has failed, so that the launcher should soon end.
  bool failed() const;
  /// Why, in the words of the first one.
  std::string reason() const;
  /// The training has come to its end, whatever becomes of its results.
  bool ended() const;
  /// The last word on the devices of this start; nothing: they are as promised.
  std::optional<ToldSpeeds> speeds() const;

 private:
  std::filesystem::path folder_;
};

/// A rank's side; writes nothing that is worth an error: the launcher then knows less.
class LaunchedRank {
 public:
  explicit LaunchedRank(std::filesystem::path folder);
  ~LaunchedRank();
  LaunchedRank(const LaunchedRank&) = delete;
  LaunchedRank& operator=(const LaunchedRank&) = delete;

  /// Of the first rank.
  void step(std::int64_t step) const;
  void failed(const std::string& reason) const;
  void ended() const;
  /// Of the first rank.
  void speeds(const ToldSpeeds& speeds) const;
  /// Throws pp::Error (data).
  std::vector<run::LostAttempt> earlier() const;

 private:
  std::filesystem::path folder_;
  int step_ = -1;  ///< descriptor
};

}  // namespace pp::run_tool
