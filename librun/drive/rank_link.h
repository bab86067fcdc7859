// A rank's line to the others while the run goes on, with a thread of its own: rank 0's orders to all, what
// their workers hand in to rank 0, signs of life both ways.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/drive/control_messages.h"
#include "librun/threads/threads.h"
#include "librun/transport/mailbox.h"
#include "librun/worker/job.h"

namespace pp::run {

/// How the clocks of other ranks go beside rank 0's; those that are not the same.
using RankClocks = std::map<int, RankClock::Relation>;

/// What rank 0 gets when all is done.
struct FromOthers {
  std::map<WorkerId, WorkerRecord> records;
  RankClocks clocks;
};

class RankLink {
 public:
  /// Before anything is commanded. Both must outlive it.
  RankLink(Job& job, Mailbox& mailbox);
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  bool leads() const { return mailbox_.rank() == 0; }

  /// Rank 0: whether another rank was asked to end the run.
  bool interrupted() const { return interrupted_; }
  /// Rank 0, when its own workers have ended. Throws Stopped.
  FromOthers await_others();

  /// Other ranks: until rank 0 has ordered the workers to stop. `interrupted` is polled, and passed on. Throws
  /// Stopped.
  void follow(const std::function<bool()>& interrupted);
  /// What the workers here wrote down, in times of rank 0's clock; returns when rank 0 has everything. Throws
  /// Stopped.
  void leave(const RecordsHere& records);

 private:
  using Time = Coordinator::Clock::time_point;

  void serve() noexcept;
  /// Rank 0's words to all, by a tree: each rank passes them on to eight others.
  void post_down(const std::string& bytes);
  void handle(Peers::ControlMessage control);
  void read_pulse(int from, Unpacker& control);
  void send_pulse();
  /// Stops the run when a rank has not been heard of for the stall timeout.
  void check_silence(Time now);
  void say_failure();
  Seconds interval() const;
  /// Other ranks: what rank 0's clock shows; neither rank sleeps until the answer is there.
  void ask();
  void read_time(Unpacker& control, Time now);
  /// A time of the run by the clock here, by rank 0's.
  Seconds common(Seconds here) const;
  LedgerEntry by_first_clock(LedgerEntry entry) const;
  void pause(std::chrono::microseconds rest) const;

  Job& job_;
  Mailbox& mailbox_;
  Monitor monitor_;  ///< of what follows
  bool stopping_ = false, left_ = false, closed_ = false;
  std::size_t complete_ = 0;  ///< ranks whose records have come
  FromOthers others_;
  int round_trips_ = 0;  ///< to come before the clock is known at the end

  mutable std::mutex clock_mutex_;  ///< of these two
  std::optional<RankClock> clock_;  ///< none: it is rank 0's
  Time first_start_{};              ///< of the run, by rank 0's clock

  std::atomic<bool> interrupted_ = false;
  std::atomic<Time> asked_ = Time{};  ///< for the time, here or on rank 0
  // Of the thread.
  std::vector<std::optional<Time>> heard_;         ///< per rank; none: it has not begun
  std::vector<Coordinator::Elsewhere> elsewhere_;  ///< per rank
  Time looked_{};                                  ///< when silence was last looked for
  Time last_pulse_{};
  bool failure_said_ = false;
  Threads thread_;
};

}  // namespace pp::run
