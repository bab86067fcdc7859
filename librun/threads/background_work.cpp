#include "librun/threads/background_work.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

namespace pp::run {

namespace {

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
