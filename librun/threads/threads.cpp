#include "librun/threads/threads.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/machine.h"

namespace pp::run {

namespace {

void check_core(const Device& device, int core, std::span<const int> allowed) {
  if (std::find(allowed.begin(), allowed.end(), core) != allowed.end()) return;
  throw Error(ErrorKind::device, "device " + to_text(device) + ": core " + std::to_string(core) +
                                     " is not available, this process may use " + profile::list_cores(allowed) +
                                     "; plan with devices that leave their cores open (--devices N)");
}

// A scheduler gives the thread that it prefers a few milliseconds; interrupts take less than this.
constexpr Seconds kNoticed{1e-3};
constexpr double kLeft = 30;  // times what was computed
constexpr Seconds kLongest{0.5};

Seconds computed_by_thread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Seconds(static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec));
}

}  // namespace

Threads::Start Threads::system() {
  return [](Body body) { return std::thread(std::move(body)); };
}

void Threads::add(Body body) {
  const std::size_t me = threads_.size();
  threads_.reserve(me + 1);
  {
    const std::lock_guard held(mutex_);
    ended_.push_back(false);
  }
  try {
    threads_.push_back(start_([this, me, body = std::move(body)] {
      body();
      const std::lock_guard held(mutex_);
      ended_[me] = true;
      changed_.notify_all();
    }));
  } catch (const std::system_error& error) {
    const std::lock_guard held(mutex_);
    ended_.pop_back();
    throw Error(ErrorKind::run, "thread " + std::to_string(me + 1) +
                                    " of the run cannot be started: " + error.code().message() +
                                    "; plan for fewer devices, or raise the limit of processes (ulimit -u)");
  }
}

void Threads::join() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

std::optional<std::size_t> Threads::join_within(Seconds most) {
  {
    std::unique_lock held(mutex_);
    const auto first = [&] { return std::ranges::find(ended_, false); };
    if (!changed_.wait_for(held, most, [&] { return first() == ended_.end(); }))
      return static_cast<std::size_t>(first() - ended_.begin());
  }
  join();
  return std::nullopt;
}

CoreBinding bind_cores(std::span<const Device> devices, std::span<const int> allowed) {
  CoreBinding binding;
  std::vector<std::pair<int, int>> users;  // core, how many devices; as `allowed`
  for (const int core : allowed) users.emplace_back(core, 0);
  for (const Device& device : devices) {
    for (const int core : device.cores) {
      check_core(device, core, allowed);
      ++std::ranges::find(users, core, &std::pair<int, int>::first)->second;
    }
  }
  for (const Device& device : devices) {
    binding.cores.push_back(device.cores);
    if (device.cores.empty() && device.kind != DeviceKind::cuda) {
      const auto least = std::ranges::min_element(users, {}, &std::pair<int, int>::second);
      ++least->second;
      binding.cores.back().push_back(least->first);
    }
    const std::size_t threads =
        device.kind == DeviceKind::cuda ? allowed.size() / devices.size() : binding.cores.back().size();
    binding.threads.push_back(std::max(1, static_cast<int>(threads)));
  }
  for (const auto& [core, count] : users) {
    if (count < 2) continue;
    binding.warnings.push_back("core " + std::to_string(core) + " is shared by " + std::to_string(count) +
                               " devices: measured times will not match the prediction; use at most " +
                               std::to_string(allowed.size()) + " devices of one core on this machine");
  }
  return binding;
}

BackgroundWork::Clocks BackgroundWork::of_thread() {
  return {[] { return Seconds(std::chrono::steady_clock::now().time_since_epoch()); }, computed_by_thread,
          [](Seconds time) { std::this_thread::sleep_for(time); }};
}

BackgroundWork::BackgroundWork(Clocks clocks) : clocks_(std::move(clocks)), left_at_(clocks_.computed()) {}

void BackgroundWork::compute(const std::function<void()>& work) {
  const Seconds wall = clocks_.wall(), computed = clocks_.computed();
  work();
  const Seconds now = clocks_.computed();
  const Seconds waited = (clocks_.wall() - wall) - (now - computed);
  if (waited < kNoticed) return;
  clocks_.sleep(std::min(kLeft * (now - left_at_), kLongest));
  left_at_ = now;
}

}  // namespace pp::run
