#include "apps/run/keep_going.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <thread>

#include "apps/cli/interrupt.h"
#include "libprofile/core/counted.h"
#include "libprofile/core/error.h"

namespace pp::run_tool {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook(20);

// Waits for the child; passes an interruption on, once. Whoever sent it may have told the child as well, which
// takes two signals in one second for one wish, but not the same one twice: so it gets another one.
ChildEnd await(pid_t child) {
  bool told = false;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (cli::interrupted() && !told) {
      kill(child, cli::interruption() == SIGTERM ? SIGINT : SIGTERM);
      told = true;
    }
    std::this_thread::sleep_for(kLook);
  }
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status)};
}

void rest(Seconds time) {
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
  while (Clock::now() < end && !cli::interrupted()) std::this_thread::sleep_for(kLook);
}

// Whether to try again: it was killed, or its training failed. What was refused would be refused again.
bool is_loss(const ChildEnd& end, const ChildProgress& progress) {
  if (progress.ended) return false;
  return end.signal != 0 || end.code == static_cast<int>(cli::ExitCode::failed);
}

// Steps are the same in every start, and so is what one of them throws. A kill may come at any time.
bool fails_again(const std::vector<run::LostAttempt>& lost) {
  if (lost.size() < 2) return false;
  const run::LostAttempt &before = lost[lost.size() - 2], &last = lost.back();
  return before.how == last.how && before.steps_done == last.steps_done;
}

std::string where_from(const std::optional<std::int64_t>& checkpoint) {
  if (!checkpoint) return "there is no checkpoint yet, so the training begins anew";
  return "it goes on from the checkpoint of step " + std::to_string(*checkpoint);
}

}  // namespace

SharedProgress::SharedProgress() {
  void* const page =
      mmap(nullptr, sizeof(ChildProgress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  progress_ = new (page) ChildProgress;
  static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
}

SharedProgress::~SharedProgress() { munmap(progress_, sizeof(ChildProgress)); }

std::string to_text(const ChildEnd& end) {
  if (end.signal == 0) return "exit code " + std::to_string(end.code);
  return "signal " + std::to_string(end.signal) + " (" + strsignal(end.signal) + ")";
}

std::optional<Seconds> Patience::after_loss(bool wrote_checkpoint) {
  constexpr double kLongest = 60;
  if (wrote_checkpoint) {
    in_vain_ = 0;
    return Seconds();
  }
  if (++in_vain_ >= attempts_) return std::nullopt;
  return Seconds(std::min(kLongest, static_cast<double>(1 << std::min(in_vain_ - 1, 10))));
}

std::optional<std::vector<run::LostAttempt>> keep_going(const KeepGoing& settings,
                                                        const SharedProgress& progress, int& code) {
  std::vector<run::LostAttempt> lost;
  Patience patience(settings.attempts);
  cli::catch_interrupts();
  const pid_t parent = getpid();
  while (true) {
    const std::optional<std::int64_t> before = settings.last_checkpoint();
    progress->step = before.value_or(0);
    progress->ended = false;
    const Clock::time_point begin = Clock::now();
    const pid_t child = fork();
    if (child < 0)
      throw Error(ErrorKind::run, std::string("no process can be started for the training: ") +
                                      std::strerror(errno) +
                                      "; close other programs, or leave out --keep-going");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);  // as if interrupted: with a checkpoint
      if (getppid() != parent) raise(SIGTERM);
      return lost;
    }
    const ChildEnd end = await(child);
    code = end.signal == 0 ? end.code : static_cast<int>(cli::ExitCode::failed);
    if (!is_loss(end, *progress) || cli::interrupted()) return std::nullopt;
    const std::optional<std::int64_t> after = settings.last_checkpoint();
    const std::int64_t done = progress->step, kept = after.value_or(0);
    lost.push_back({.how = to_text(end),
                    .first_step = before.value_or(0),
                    .steps_done = std::max(done, kept),
                    .checkpoint = after,
                    .time = Clock::now() - begin});
    const std::string what = "the training was lost by " + to_text(end) + " after " +
                             pp::to_text(lost.back().time) + " at step " + std::to_string(done);
    if (end.signal == 0 && fails_again(lost)) {
      settings.say(what + "; it failed at this step before, so it would again");
      return std::nullopt;
    }
    const std::optional<Seconds> pause = patience.after_loss(after && after != before);
    if (!pause) {
      settings.say(what + "; no checkpoint was written by " + counted(settings.attempts, "start") +
                   " in a row, so this is the end (--attempts)");
      return std::nullopt;
    }
    settings.say(what + "; " + where_from(after) +
                 (*pause > Seconds() ? ", in " + pp::to_text(*pause) : std::string()));
    rest(*pause);
    if (cli::interrupted()) {
      code = static_cast<int>(cli::ExitCode::interrupted);
      return std::nullopt;
    }
  }
}

}  // namespace pp::run_tool
