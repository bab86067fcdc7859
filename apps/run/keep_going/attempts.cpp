#include "apps/run/keep_going/attempts.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "apps/cli/interrupt.h"
#include "apps/cli/shell.h"
#include "libprofile/core/error.h"
#include "libprofile/core/text.h"
#include "librun/checkpoint/checkpoint_folder.h"

namespace pp::run_tool {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook(20);

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

}  // namespace pp::run_tool
