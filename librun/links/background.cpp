#include "librun/links/background.h"

#include <ctime>
#include <limits>
#include <thread>

namespace pp::run {

Seconds spent_here() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

Mover::Mover(Peers& peers) : peers_(peers) {
  thread_.add([this] { serve(); });
}

Mover::~Mover() {
  ended_ = true;
  thread_.join();
}

void Mover::serve() noexcept {
  for (auto rest = kShortestRest; !ended_; rest = std::min(2 * rest, kLongestRest)) {
    if (peers_.sending()) rest = kShortestRest;
    peers_.next_control_message();  // nobody writes any; asking moves on what is coming
    spent_ = spent_here();
    std::this_thread::sleep_for(rest);
  }
}

Computation::Computation() : numbers_(4096, 1.0F) {
  constexpr int kProbes = 50;
  constexpr long kProbe = 50;
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < kProbes; ++i) {
    const Seconds start = spent_here();
    run(kProbe);
    least = std::min(least, (spent_here() - start).count());
  }
  per_second_ = kProbe / least;
}

void Computation::run(Seconds time) { run(static_cast<long>(time.count() * per_second_) + 1); }

void Computation::run(long rounds) {
  for (long round = 0; round < rounds; ++round) {
    for (float& number : numbers_) number = 0.5F * number + 1;
  }
  sink_ = numbers_.front();
}

}  // namespace pp::run
