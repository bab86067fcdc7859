#include "librun/drive/work.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "librun/threads/watchdog.h"

namespace pp::run {

namespace {

// With lost workers; what they may still touch lives as long as the process.
std::vector<std::unique_ptr<Work>>& left_behind() {
  static auto* const works = new std::vector<std::unique_ptr<Work>>;
  return *works;
}

// How many stall timeouts files may take to be written: a large one that is flushed takes longer than an
// operation, a disk that does not answer takes for ever.
constexpr int kWritingPatience = 10;
constexpr std::chrono::milliseconds kWait(20);

// A phase that ends by itself after `most`, so that the watchdog sees who waits for it.
class BoundedPhase {
 public:
  BoundedPhase(Coordinator& run, Seconds most) : phase_(std::in_place, run) {
    thread_.add([this, most] {
      std::unique_lock held(mutex_);
      if (!over_.wait_for(held, most, [this] { return ended_; })) phase_.reset();
    });
  }
  ~BoundedPhase() {
    {
      const std::lock_guard held(mutex_);
      ended_ = true;
    }
    over_.notify_one();
  }
  BoundedPhase(const BoundedPhase&) = delete;
  BoundedPhase& operator=(const BoundedPhase&) = delete;

 private:
  std::optional<Phase> phase_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool ended_ = false;
  Threads thread_;
};

[[noreturn]] void fail(std::unique_ptr<Work> work, const std::exception_ptr& error) {
  constexpr Seconds kMostGrace{5};
  work->job.coordinator.stop(error);
  const Seconds grace = std::min(work->job.options.stall_timeout, kMostGrace);
  std::string state;
  if (const std::optional<WorkerId> lost = work->crew.join_within(grace)) {
    state = work->job.coordinator.state_of(*lost);
  } else if (!work->written_within(work->job.options.stall_timeout * kWritingPatience)) {
    state = "the thread that writes checkpoints and weights; look at the disk";
  }
  if (state.empty()) std::rethrow_exception(error);
  left_behind().push_back(std::move(work));
  throw Error(ErrorKind::run,
              text_of(error) + "\n  does not end, so it is left behind after " + to_text(grace) + ": " + state);
}

}  // namespace

Crew::Crew(Job& job, Threads::Start start) : job_(job), threads_(std::move(start)) {
  std::vector<at::Device> devices;
  for (const WorkerId id : job.workers_here()) {
    const Device& device = job.setup.devices[index(id)];
    devices.push_back(profile::tensor_device(device.kind, device.index));
  }
  profile::open_devices(devices);
  for (const WorkerId id : job.workers_here()) workers_.push_back(std::make_unique<Worker>(job, id));
  try {
    for (const auto& worker : workers_) threads_.add([&worker = *worker] { worker.run(); });
  } catch (...) {
    job_.coordinator.stop(std::current_exception());
    throw;
  }
}

Crew::~Crew() {
  job_.coordinator.stop(nullptr);
  join();
}

std::optional<WorkerId> Crew::join_within(Seconds most) {
  const std::optional<std::size_t> left = threads_.join_within(most);
  if (!left) return std::nullopt;
  return workers_[*left]->id();
}

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
  // A clock that counts nanoseconds overflows after 292 years.
  const BoundedPhase phase(job.coordinator,
                           std::min(job.options.stall_timeout, Seconds(1e7)) * kWritingPatience);
  saving = true;
  try {
    write(std::move(snapshot), saver);
  } catch (...) {
    saving = false;
    throw;
  }
  saving = false;
}

bool Work::written_within(Seconds most) const {
  const auto begin = Coordinator::Clock::now();
  while (saving && Coordinator::Clock::now() - begin < most) std::this_thread::sleep_for(kWait);
  return !saving;
}

void Work::write(Snapshot snapshot, Saver& saver) {
  const Position position = snapshot.position;
  CheckpointShare mine = saver.write_share(job, std::move(snapshot));
  if (link && !link->leads()) {
    return link->post(std::move(mine));
  }
  std::vector<CheckpointShare> shares;
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

int works_left_behind() { return static_cast<int>(left_behind().size()); }

}  // namespace pp::run
