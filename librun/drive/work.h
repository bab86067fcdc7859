// A job with the workers that do it on their threads, and what becomes of them when something fails.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "librun/drive/rank_link.h"
#include "librun/threads/threads.h"
#include "librun/worker/worker.h"

namespace pp::run {

/// The workers of this process and their threads; however the driver's work ends, all of them are stopped and
/// joined.
class Crew {
 public:
  /// Throws pp::Error (run) when a thread cannot be started.
  explicit Crew(Job& job, Threads::Start start = Threads::system());
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void join() { threads_.join(); }
  /// The first worker that has not come back after `most`; none when all of them have.
  std::optional<WorkerId> join_within(Seconds most);
  /// To be looked into after join().
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

 private:
  Job& job_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Threads threads_;
};

struct Work {
  /// The workers begin to make their weights. `files`: null where nothing is written. `mailbox`: of a run on
  /// several processes; must outlive it.
  Work(const plan::Plan& plan, const RunOptions& options, Setup setup, std::unique_ptr<SavedFiles> files,
       Mailbox* mailbox = nullptr, std::optional<ForwardOnly> forward_only = std::nullopt);

  Job job;
  Crew crew;
  std::optional<RankLink> link;  ///< none: the run is one process
};

/// Calls `drive` under a watchdog and joins the workers, who have been told to stop by then. Rethrows the first
/// error of all. A worker that does not end within its grace time is left behind with `work`, which the message
/// says.
void perform(std::unique_ptr<Work>& work, const std::function<void()>& drive);

/// How many of them there are in this process.
int works_left_behind();

}  // namespace pp::run
