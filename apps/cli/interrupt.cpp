#include "apps/cli/interrupt.h"

#include <unistd.h>
#include <csignal>

namespace pp::cli {
namespace {

volatile std::sig_atomic_t g_signals = 0;  // the one mutable global: a signal handler can reach nothing else

extern "C" void on_signal(int) {
  if (g_signals != 0) _exit(130);
  g_signals = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction found {};
  sigaction(SIGHUP, nullptr, &found);
  if (found.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup wants it ignored
}

bool interrupted() { return g_signals != 0; }

}  // namespace pp::cli
