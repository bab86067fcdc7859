#include "librun/threads/watchdog.h"

#include <algorithm>
#include <string>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

// A clock that counts nanoseconds in 64 bits overflows after 292 years; a few years are as good as never.
constexpr Seconds kForever{1e8};
// The timeout is waited for in slices: a process that was suspended finds one slice over when it wakes up, not
// all.
constexpr int kSlices = 4;

}  // namespace

Watchdog::Watchdog(Coordinator& run, Seconds timeout) : run_(run), timeout_(std::min(timeout, kForever)) {
  thread_.add([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard held(mutex_);
    ended_ = true;
  }
  over_.notify_all();
  thread_.join();
}

void Watchdog::watch() {
  const auto slice = std::chrono::duration_cast<Coordinator::Clock::duration>(timeout_ / kSlices);
  std::unique_lock lock(mutex_);
  std::uint64_t seen = run_.progress();
  for (int idle = 0; !over_.wait_for(lock, slice, [&] { return ended_; });) {
    const std::uint64_t progress = run_.progress();
    idle = progress != seen || run_.in_phase() ? 0 : idle + 1;
    seen = progress;
    if (idle < kSlices) continue;
    run_.stop(std::make_exception_ptr(Error(ErrorKind::run, report())));
    return;
  }
}

std::string Watchdog::report() const {
  std::string text = "stalled: no operation has ended for " + to_text(timeout_) +
                     "; raise the stall timeout if single operations take that long";
  for (int w = 0; w < run_.workers(); ++w) text += "\n  " + run_.state_of(WorkerId{w});
  return text;
}

}  // namespace pp::run
