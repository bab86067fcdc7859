#include "apps/run/keep_going/keep_going.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "apps/cli/interrupt.h"
#include "libprofile/core/error.h"
#include "libprofile/core/text.h"
#include "librun/checkpoint/checkpoint_folder.h"

namespace pp::run_tool {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook(20);

ChildEnd end_of(int status) {
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status)};
}

// Waits for the child; passes an interruption on, once. Whoever sent it may have told the child as well, which
// takes two signals in one second for one wish, but not the same one twice: so it gets another one. `stop`: why
// the child should stop, asked until it is told.
ChildEnd await(pid_t child, const std::function<std::optional<std::string>()>& stop,
               std::optional<std::string>& stopped) {
  bool told = false;
  while (true) {
    if (const std::optional<ChildEnd> end = look_at_child(child)) return *end;
    if (cli::interrupted() && !told) {
      kill(child, cli::interruption() == SIGTERM ? SIGINT : SIGTERM);
      told = true;
    }
    if (!told && (stopped = stop())) {
      kill(child, SIGTERM);
      told = true;
    }
    std::this_thread::sleep_for(kLook);
  }
}

// What is not the program's own way to end: it was killed, or its training failed; the codes of launchers, too.
bool is_failure(const ChildEnd& end) {
  constexpr std::array kOwn{cli::ExitCode::done, cli::ExitCode::usage, cli::ExitCode::infeasible,
                            cli::ExitCode::interrupted};
  return end.signal != 0 || std::ranges::count(kOwn, static_cast<cli::ExitCode>(end.code)) == 0;
}

bool is_refusal(const ChildEnd& end) {
  return end.signal == 0 && end.code == static_cast<int>(cli::ExitCode::usage);
}

bool trained(const run::LostAttempt& attempt) { return attempt.steps_done > attempt.first_step; }

}  // namespace

SharedProgress::SharedProgress() {
  void* const page =
      mmap(nullptr, sizeof(ChildProgress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  progress_ = new (page) ChildProgress;
  static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
}

SharedProgress::~SharedProgress() { munmap(progress_, sizeof(ChildProgress)); }

void expect_children() { std::signal(SIGCHLD, SIG_DFL); }

std::optional<ChildEnd> look_at_child(pid_t child) {
  int status = 0;
  const pid_t ended = waitpid(child, &status, WNOHANG);
  if (ended == child) return end_of(status);
  if (ended == 0 || errno == EINTR) return std::nullopt;
  throw Error(ErrorKind::run, "process " + std::to_string(child) + ": how it ends cannot be known: " +
                                  std::strerror(errno) + "; go on from the last checkpoint with --resume");
}

std::string to_text(const ChildEnd& end) {
  if (end.signal == 0) return "exit code " + std::to_string(end.code);
  return "signal " + std::to_string(end.signal) + " (" + strsignal(end.signal) + ")";
}

int code_of(const ChildEnd& end) {
  return end.signal == 0 ? end.code : static_cast<int>(cli::ExitCode::failed);
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

std::optional<std::int64_t> newest_checkpoint(const std::filesystem::path& folder) {
  if (folder.empty() || !run::has_checkpoints(folder)) return std::nullopt;
  return run::step_of_checkpoint(run::checkpoints_of(folder).front());
}

// A folder that cannot be read for a moment still has what it had.
std::optional<std::int64_t> Attempts::newest() const {
  try {
    return settings_.last_checkpoint();
  } catch (const Error& error) {
    settings_.say(error.what());
    return before_;
  }
}

void Attempts::begin() {
  before_ = newest();
  begin_ = Clock::now();
  if (!lost_.empty()) lost_.back().to_next = begin_ - ended_;
}

bool Attempts::is_lost(const ChildEnd& end, std::int64_t done, bool ended, const std::string& reason) {
  const bool refused_now = is_refusal(end) && !lost_.empty();
  if (ended || !(is_failure(end) || refused_now)) return false;
  end_ = end;
  reason_before_ = std::exchange(reason_, reason);
  note(to_text(end), done);
  return true;
}

void Attempts::stopped(const std::string& why, std::int64_t done) {
  note(why, done);
  patience_.after_loss(/*wrote_checkpoint=*/true);
}

void Attempts::note(const std::string& how, std::int64_t done) {
  const std::optional<std::int64_t> after = newest();
  ended_ = Clock::now();
  lost_.push_back({.how = how,
                   .first_step = first_step(),
                   .steps_done = std::max(done, after.value_or(0)),
                   .checkpoint = after,
                   .time = ended_ - begin_});
}

bool goes_on(const std::vector<run::LostAttempt>& lost, bool resumed) {
  return !lost.empty() && (lost.back().checkpoint || !resumed);
}

void Attempts::describe(const std::string& plan, const std::string& hosts) {
  lost_.back().plan = plan;
  lost_.back().hosts = hosts;
}

std::string Attempts::loss() const {
  const run::LostAttempt& last = lost_.back();
  return "the training was lost by " + last.how + " after " + pp::to_text(last.time) + " at step " +
         std::to_string(last.steps_done);
}

std::string Attempts::where_from() const {
  const std::optional<std::int64_t>& checkpoint = lost_.back().checkpoint;
  if (!checkpoint) return "there is no checkpoint yet, so the training begins anew";
  return "it goes on from the checkpoint of step " + std::to_string(*checkpoint);
}

std::optional<Seconds> Attempts::pause(Circumstances circumstances) {
  // Steps are the same in every start, and so is what one of them throws. A kill may come at any time, and what
  // ends before its first step is mostly the launcher.
  if (end_.signal == 0 && circumstances == Circumstances::same && lost_.size() >= 2) {
    const run::LostAttempt &before = lost_[lost_.size() - 2], &last = lost_.back();
    if (trained(last) && before.how == last.how && before.steps_done == last.steps_done &&
        reason_before_ == reason_) {
      settings_.say(loss() + "; it failed at this step before, so it would again");
      return std::nullopt;
    }
  }
  const std::optional<std::int64_t>& after = lost_.back().checkpoint;
  const std::optional<Seconds> pause = patience_.after_loss(after && after != before_);
  if (!pause)
    settings_.say(loss() + "; no checkpoint was written by " + counted(settings_.attempts, "start") +
                  " in a row, so this is the end (--attempts)");
  return pause;
}

void rest(Seconds time) {
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
  while (Clock::now() < end && !cli::interrupted()) std::this_thread::sleep_for(kLook);
}

std::optional<std::vector<run::LostAttempt>> keep_going(const KeepGoing& settings, OtherPlans* others,
                                                        const SharedProgress& progress, int& code) {
  Attempts attempts(settings);
  cli::catch_interrupts();
  expect_children();
  const pid_t parent = getpid();
  while (true) {
    attempts.begin();
    progress->step = attempts.first_step();
    progress->ended = false;
    if (others) others->begin();
    const pid_t child = fork();
    if (child < 0)
      throw Error(ErrorKind::run, std::string("no process can be started for the training: ") +
                                      std::strerror(errno) +
                                      "; close other programs, or leave out --keep-going");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);  // as if interrupted: with a checkpoint
      if (getppid() != parent) raise(SIGTERM);
      return attempts.lost();
    }
    std::optional<std::string> why;
    const auto stop = [&] { return others ? others->stop(progress->step) : std::nullopt; };
    const ChildEnd end = await(child, stop, why);
    code = code_of(end);
    if (cli::interrupted()) return std::nullopt;
    if (why && code == static_cast<int>(cli::ExitCode::interrupted)) {
      attempts.stopped(*why, progress->step);
      attempts.describe(others->plan(), "");
      others->stopped();
      continue;
    }
    if (!attempts.is_lost(end, progress->step, progress->ended)) return std::nullopt;
    if (others) attempts.describe(others->plan(), "");
    const std::optional<Seconds> pause = attempts.pause(Circumstances::same);
    if (!pause) return std::nullopt;
    settings.say(attempts.loss() + "; " + attempts.where_from() +
                 (*pause > Seconds() ? ", in " + pp::to_text(*pause) : std::string()));
    rest(*pause);
    if (cli::interrupted()) {
      code = static_cast<int>(cli::ExitCode::interrupted);
      return std::nullopt;
    }
  }
}

}  // namespace pp::run_tool
