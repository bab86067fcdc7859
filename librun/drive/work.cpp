#include "librun/drive/work.h"

#include <algorithm>
#include <string>
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

[[noreturn]] void fail(std::unique_ptr<Work> work, const std::exception_ptr& error) {
  constexpr Seconds kMostGrace{5};
  work->job.coordinator.stop(error);
  const Seconds grace = std::min(work->job.options.stall_timeout, kMostGrace);
  std::string state;
  if (const std::optional<WorkerId> lost = work->crew.join_within(grace)) {
    state = work->job.coordinator.state_of(*lost);
  } else if (work->job.checkpointer && !work->job.checkpointer->written_within()) {
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

Work::Work(const plan::Plan& plan, const RunOptions& options, Setup setup, std::unique_ptr<SavedFiles> files,
           Mailbox* mailbox, std::optional<ForwardOnly> forward_only)
    : job(plan, options, std::move(setup), std::move(forward_only), std::move(files)), crew(job) {
  job.initial.reset();  // the workers have it
  if (!mailbox) return;
  job.connect(*mailbox);
  link.emplace(job, *mailbox);
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
