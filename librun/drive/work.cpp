#include "librun/drive/work.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/run.h"
#include "librun/transport/watchdog.h"

namespace pp::run {

namespace {

// With lost workers; what they may still touch lives as long as the process.
std::vector<std::unique_ptr<Work>>& left_behind() {
  static auto* const works = new std::vector<std::unique_ptr<Work>>;
  return *works;
}

[[noreturn]] void fail(std::unique_ptr<Work> work, const std::exception_ptr& error) {
  constexpr Seconds kMostGrace{5};
  work->job.coordinator.stop(error);
  const Seconds grace = std::min(work->job.options.stall_timeout, kMostGrace);
  const std::optional<WorkerId> lost = work->crew.join_within(grace);
  if (!lost) std::rethrow_exception(error);
  const std::string state = work->job.coordinator.state_of(*lost);
  left_behind().push_back(std::move(work));
  throw Error(ErrorKind::run,
              text_of(error) + "\n  does not end, so it is left behind after " + to_text(grace) + ": " + state);
}

}  // namespace

Work::Work(const plan::Plan& plan, const RunOptions& options, Setup setup, std::shared_ptr<Saver> saver,
           Mailbox* mailbox, std::optional<ForwardOnly> forward_only)
    : job(plan, options, std::move(setup), std::move(forward_only)), crew(job) {
  job.initial.reset();  // the workers have it
  if (job.takes_snapshots())
    writer.emplace(job.coordinator, job.snapshots,
                   [this, saver = std::move(saver)](Snapshot s) { save(std::move(s), *saver); });
  if (!mailbox) return;
  job.connect(*mailbox);
  link.emplace(job, *mailbox);
}

// Snapshots are complete only after the first command, so that the link is there.
void Work::save(Snapshot snapshot, Saver& saver) {
  const Position position = snapshot.position;
  Share mine = saver.write_share(job, std::move(snapshot));
  if (link && !link->leads()) return link->post(std::move(mine));
  std::vector<Share> shares;
  if (link) shares = link->await_shares(mine.step, mine.last);
  shares.insert(shares.begin(), std::move(mine));
  saver.save(job, position, std::move(shares));
}

void perform(std::unique_ptr<Work>& work, const std::function<void()>& drive) {
  std::exception_ptr error;
  try {
    // Rank 0 hears of all and says what stalls; another one only when that does not happen.
    const bool leads = !work->link || work->link->leads();
    const Watchdog watchdog(work->job.coordinator, work->job.options.stall_timeout * (leads ? 1 : 1.5));
    drive();
    work->crew.join();
    error = work->job.coordinator.error();
  } catch (const Stopped&) {
    error = work->job.coordinator.error();
    if (!error) error = std::make_exception_ptr(Error(ErrorKind::internal, "stopped without an error"));
  } catch (...) {
    error = std::current_exception();
  }
  if (error) fail(std::move(work), error);
}

int runs_left_behind() { return static_cast<int>(left_behind().size()); }

}  // namespace pp::run
