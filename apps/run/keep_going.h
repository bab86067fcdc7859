// A training in processes of its own, one after the other until one ends by itself: what a crash, a kill or a
// stall leaves is its last checkpoint, from which the next one goes on.
#pragma once

#include <atomic>
#include <cstdint>
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

/// `signal 9 (Killed)`, `exit code 1`
std::string to_text(const ChildEnd& end);

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

/// In the calling process, which has no other thread: starts children. In a child returns the attempts that
/// were lost before it, and the child goes on as if it were the whole program. In the parent returns nothing,
/// with `code` the exit code: a child has ended by itself, an interruption was passed on to the last one,
/// starts were in vain, or two in a row failed at the same step. Throws pp::Error (run) when no process can be
/// started.
std::optional<std::vector<run::LostAttempt>> keep_going(const KeepGoing& settings,
                                                        const SharedProgress& progress, int& code);

}  // namespace pp::run_tool
