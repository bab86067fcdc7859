// The starts of a training that keeps going: which of them were lost, what is said of that, when the next one
// follows and when none does.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/run/keep_going/child_process.h"
#include "librun/report/report.h"

namespace pp::run_tool {

/// When to give up, and how long to wait before the next start: nothing after one that has written a
/// checkpoint, else 1, 2, 4, ... at most 60 s.
class Patience {
 public:
  /// `attempts`: starts in a row that write no checkpoint.
  explicit Patience(int attempts) : attempts_(attempts) {}
  /// After a lost start; nothing: give up.
  std::optional<Seconds> after_loss(bool wrote_checkpoint);

 private:
  int attempts_;
  int in_vain_ = 0;
};

/// The newest checkpoint's step in the folder; nothing where it is not there or has none.
std::optional<std::int64_t> newest_checkpoint(const std::filesystem::path& folder);

/// Whether a start behind these goes on from the folder of its own checkpoints: also where the supervisor sees
/// none there, as ranks may. `resumed`: the first start went on from another folder.
bool goes_on(const std::vector<run::LostAttempt>& lost, bool resumed);

/// Whether a start that follows has other machines or another plan than the one before it.
enum class Circumstances { same, changed };

/// The starts of a training, one after the other.
class Attempts {
 public:
  struct Settings {
    int attempts = 3;  ///< Patience
    /// Step of the newest checkpoint, by name; none: there is none.
    std::function<std::optional<std::int64_t>()> last_checkpoint;
    std::function<void(const std::string&)> say;  ///< a line of what happens
  };
  explicit Attempts(Settings settings) : settings_(std::move(settings)), patience_(settings_.attempts) {}

  /// Before a start.
  void begin();
  /// Whether the start was lost, so that another may follow, and notes it then: it was killed, or its training
  /// failed, at step `done`. What the first start is refused would be refused again; a later one only finds the
  /// machine otherwise (a lock, memory that is not free yet). `reason`: the training's own, where it is known.
  bool is_lost(const ChildEnd& end, std::int64_t done, bool ended, const std::string& reason = {});
  /// Notes one that was stopped on purpose, with a checkpoint.
  void stopped(const std::string& why, std::int64_t done);
  /// What the one that was noted last ran, and where.
  void describe(const std::string& plan, const std::string& hosts);
  /// What was lost, in words: `the training was lost by signal 9 (Killed) after 3.1 s at step 40`.
  std::string loss() const;
  /// `it goes on from the checkpoint of step 40`, or that there is none.
  std::string where_from() const;
  /// How long to wait before the next start. Nothing, and why is said: starts were in vain, or two in a row
  /// failed at the same step, which they had reached, under the same circumstances and for the same reason.
  std::optional<Seconds> pause(Circumstances circumstances);

  const std::vector<run::LostAttempt>& lost() const { return lost_; }
  /// Of the start that runs, or ran last.
  std::int64_t first_step() const { return before_.value_or(0); }

 private:
  Settings settings_;
  Patience patience_;
  std::vector<run::LostAttempt> lost_;
  std::optional<std::int64_t> before_;  ///< checkpoint that the last start began with
  std::chrono::steady_clock::time_point begin_, ended_;
  ChildEnd end_;
  std::string reason_, reason_before_;  ///< of the last start that was lost, and of the one before it

  std::optional<std::int64_t> newest() const;
  void note(const std::string& how, std::int64_t done);
};

/// Waits, or until the process is interrupted.
void rest(Seconds time);

}  // namespace pp::run_tool
