// A job with the workers that do it, and what becomes of them when something fails.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "librun/drive/crew.h"
#include "librun/drive/rank_link.h"
#include "librun/drive/saver.h"

namespace pp::run {

struct Work {
  /// The workers begin to make their weights. `saver`: null where no snapshots are taken. `mailbox`: of a run
  /// on several processes; must outlive it.
  Work(const plan::Plan& plan, const RunOptions& options, Setup setup, std::shared_ptr<Saver> saver,
       Mailbox* mailbox = nullptr, std::optional<ForwardOnly> forward_only = std::nullopt);

  std::atomic<bool> saving = false;  ///< files are being written
  Job job;
  Crew crew;
  std::optional<SnapshotWriter> writer;
  std::optional<RankLink> link;  ///< none: the run is one process

  /// Waits for files that are being written, for at most so long; whether they are.
  bool written_within(Seconds most) const;

 private:
  void save(Snapshot snapshot, Saver& saver);
  void write(Snapshot snapshot, Saver& saver);
};

/// Calls `drive` under a watchdog and joins the workers, who have been told to stop by then. Rethrows the first
/// error of all. A worker that does not end within its grace time is left behind with `work`, which the message
/// says.
void perform(std::unique_ptr<Work>& work, const std::function<void()>& drive);

/// How many of them there are in this process.
int works_left_behind();

}  // namespace pp::run
