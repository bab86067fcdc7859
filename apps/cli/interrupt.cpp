#include "apps/cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace pp::cli {
namespace {

// The first signal, with when it came: milliseconds * kSignals + its number; 0: none. Handlers run on any
// thread and can reach nothing but globals.
std::atomic<std::int64_t> g_first = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
constexpr std::int64_t kSignals = 128;
constexpr std::int64_t kSameAgain = 100, kOneWish = 1000;  // ms

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// A launcher that was interrupted soon sends its own signal to the processes that the terminal has told
// already; timeout(1) sends its signal to its child and at once to the group, with the child in it.
extern "C" void on_signal(int signal) {
  const std::int64_t now = now_ms();
  std::int64_t first = 0;
  if (g_first.compare_exchange_strong(first, now * kSignals + signal)) return;
  if (now - first / kSignals >= (first % kSignals == signal ? kSameAgain : kOneWish)) _exit(130);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  struct sigaction found {};
  sigaction(SIGHUP, nullptr, &found);
  if (found.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup wants it ignored
}

int interruption() { return static_cast<int>(g_first.load() % kSignals); }

bool interrupted() { return interruption() != 0; }

}  // namespace pp::cli
