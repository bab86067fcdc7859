// A training started again and again until it ends by itself: what a crash, a kill or a stall leaves is its
// last checkpoint, from which the next start goes on. Attempts judges every start, whoever makes it;
// keep_going() makes them in child processes of this one.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/shell.h"
#include "librun/report/report.h"

namespace pp::run_tool {

/// What the child that runs now has done, in memory that its parent sees.
struct ChildProgress {
  std::atomic<std::int64_t> step = 0;  ///< updates since the beginning of the training
  std::atomic<bool> ended = false;     ///< the training has come to its end, whatever becomes of its results
};

class SharedProgress {
 public:
  SharedProgress();
  ~SharedProgress();
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  ChildProgress& operator*() const { return *progress_; }
  ChildProgress* operator->() const { return progress_; }

 private:
  ChildProgress* progress_;
};

/// How a child has ended.
struct ChildEnd {
  int code = 0;    ///< exit code
  int signal = 0;  ///< that killed it; 0: none
};

/// Before children are started: whoever started this process may ignore SIGCHLD, which is inherited, and of a
/// child of such a process the system does not say how it ended.
void expect_children();
/// How the child has ended; nothing as long as it runs. Throws pp::Error (run) where that cannot be known.
std::optional<ChildEnd> look_at_child(pid_t child);

/// `signal 9 (Killed)`, `exit code 1`
std::string to_text(const ChildEnd& end);
/// As the exit code of a process that stands for it.
int code_of(const ChildEnd& end);

/// When to give up, and how long to wait before the next start: nothing after one that has written a
/// checkpoint, else 1, 2, 4, ... at most 60 s.
class Patience {
 public:
  /// `attempts`: starts in a row that write no checkpoint.
  explicit Patience(int attempts) : attempts_(attempts) {}
  /// After a lost child; nothing: give up.
  std::optional<Seconds> after_loss(bool wrote_checkpoint);

 private:
  int attempts_;
  int in_vain_ = 0;
};

struct KeepGoing {
  int attempts = 3;  ///< Patience
  /// Step of the newest checkpoint, by name; none: there is none.
  std::function<std::optional<std::int64_t>()> last_checkpoint;
  std::function<void(const std::string&)> say;  ///< a line of what happens
};

/// Another way to go on, for which a training is stopped with a checkpoint.
class OtherPlans {
 public:
  virtual ~OtherPlans() = default;
  /// A start begins.
  virtual void begin() = 0;
  /// Asked again and again while it trains, at `step`: why it should stop; nothing: it should not.
  virtual std::optional<std::string> stop(std::int64_t step) = 0;
  /// It has stopped, with a checkpoint: the next start goes on otherwise.
  virtual void stopped() = 0;
  /// What a start runs, in a line.
  virtual std::string plan() const = 0;
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
  explicit Attempts(KeepGoing settings) : settings_(std::move(settings)), patience_(settings_.attempts) {}

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
  KeepGoing settings_;
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

/// In the calling process, which has no other thread: starts children. In a child returns the attempts that
/// were lost before it, and the child goes on as if it were the whole program. `others`: null where the plan
/// stays. In the parent returns nothing,
/// with `code` the exit code: a child has ended by itself, an interruption was passed on to the last one, or
/// Attempts has given up. Throws pp::Error (run) when no process can be started.
std::optional<std::vector<run::LostAttempt>> keep_going(const KeepGoing& settings, OtherPlans* others,
                                                        const SharedProgress& progress, int& code);

}  // namespace pp::run_tool
