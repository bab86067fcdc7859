#include "apps/run/keep_going/keep_going.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "apps/cli/interrupt.h"
#include "apps/cli/progress.h"
#include "apps/run/keep_going/attempts.h"
#include "apps/run/keep_going/child_process.h"
#include "apps/run/keep_going/fleet.h"
#include "apps/run/keep_going/next_plan.h"
#include "apps/run/keep_going/rebalance.h"
#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/text.h"

namespace pp::run_tool {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLaunchLook(50);
constexpr Seconds kProbe(10);    // a host that does not answer by then is lost
constexpr Seconds kFailed(3);    // from a rank that has failed to the end of the launcher
constexpr Seconds kEnding(2);    // of a launcher that was told to end
constexpr double kWorth = 0.95;  // of the step time: a restart is worth it from here on
constexpr std::chrono::milliseconds kSpeeds(250);
constexpr int kFailedCode = static_cast<int>(cli::ExitCode::failed);
constexpr int kInterruptedCode = static_cast<int>(cli::ExitCode::interrupted);

std::string names(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += (text.empty() ? "" : ", ") + host.name;
  return text;
}

int attempts_of(const RestartOptions& options) { return options.attempts.value_or(3); }

class Supervisor {
 public:
  explicit Supervisor(const KeptTraining& training)
      : training_(training),
        planning_(training.planning),
        fleet_(training.hosts),
        current_(training.planning.first),
        state_(std::filesystem::path(training.checkpoint) / "launch"),
        attempts_({.attempts = attempts_of(training.restart),
                   .last_checkpoint = [this] { return newest_checkpoint(training_.checkpoint); },
                   .say = [](const std::string& line) { cli::warn(line); }}) {
    if (training.restart.rebalance) rebalancer_.emplace(planning_, *training.restart.rebalance);
  }

  int run() {
    cli::catch_interrupts();
    expect_children();
    note_devices();
    while (true) {
      const std::optional<int> code = finished(start());
      if (code) return *code;
    }
  }

 private:
  /// GPUs that are lost later are those that a host has now.
  void note_devices() {
    const auto cuda = [](const Device& device) { return device.kind == DeviceKind::cuda; };
    if (training_.launcher && std::ranges::any_of(current_.plan.devices, cuda))
      fleet_.note_devices(ask(fleet_.there()));
  }

  /// By the launcher.
  std::vector<std::optional<HostAnswer>> ask(const std::vector<Host>& hosts) const {
    return ask_hosts(hosts, *training_.launcher, training_.options.program, kProbe);
  }

  std::vector<std::string> command() {
    LaunchOptions options = training_.options;
    options.plan = current_.file;
    if (goes_on(attempts_.lost(), value_of(options.arguments, "--resume").has_value()))
      options.arguments = with_value(options.arguments, "--resume", training_.checkpoint);
    options.arguments.insert(options.arguments.begin(), {"--launch-state", state_.folder().string()});
    if (!training_.launcher) return rank_command(options);
    return launch_command(current_.plan, fleet_.there(), *training_.launcher, options);
  }

  /// One start, to its end.
  ChildEnd start() {
    attempts_.begin();
    const Clock::time_point begin = Clock::now();
    state_.begin(attempts_.first_step(), attempts_.lost());
    if (rebalancer_) rebalancer_->begin();
    next_.reset();
    hosts_ = names(fleet_.there());
    ChildProcess child(command());
    bool told = false, trains = false;
    std::optional<Clock::time_point> failed;
    probes_.clear();
    asked_ = begin;
    while (true) {
      if (const std::optional<ChildEnd> end = child.look()) return *end;
      if (!trains && state_.step() > attempts_.first_step()) trains = note_training();
      if (!told && (cli::interrupted() || (trains && (look_for_hosts() || look_at_devices())))) {
        child.signal(SIGUSR1);  // which launchers pass on; ranks end with a checkpoint
        told = true;
      }
      if (training_.launcher && !failed && state_.failed()) failed = Clock::now();
      if (failed && Clock::now() - *failed > kFailed) {  // it waits for a host that does not answer
        child.end(kEnding);
        cli::warn("a rank failed, and the launcher did not end by itself: " + state_.reason());
        return {.code = kFailedCode};
      }
      std::this_thread::sleep_for(kLaunchLook);
    }
  }

  bool note_training() {
    if (lost_) away_ += Clock::now() - *lost_;
    lost_.reset();
    if (rebalancer_) rebalancer_->trains();
    return true;
  }

  /// The exit code, when all is over.
  std::optional<int> finished(const ChildEnd& end) {
    const int code = code_of(end);
    const bool stopped = next_ && code == kInterruptedCode;
    // A child that has not come to handle signals yet is killed by the one that passes an interruption on.
    if (cli::interrupted()) return end.signal != 0 ? kInterruptedCode : code;
    if (stopped) {
      attempts_.stopped(reason_, state_.step());
      note_end();
      if (!speeds_.empty()) planning_.speeds = std::exchange(speeds_, {});
      adopt(*std::move(next_));
      cli::warn(promise_ + "; " + attempts_.where_from());
      return std::nullopt;
    }
    speeds_.clear();
    if (!attempts_.is_lost(end, state_.step(), state_.ended(), state_.reason())) return sum_up(code);
    note_end();
    return recover();
  }

  void note_end() {
    if (!lost_) lost_ = Clock::now();
    attempts_.describe(plan_line(current_.plan) + " (" + plan::plan_hash(current_.plan) + ")", hosts_);
  }

  /// What was lost, what is left, what goes on. The exit code, where nothing does.
  std::optional<int> recover() {
    std::vector<std::string> lost;
    if (training_.launcher) lost = fleet_.note(ask(fleet_.there()));
    if (!wait_for_a_host()) return cli::interrupted() ? kInterruptedCode : kFailedCode;
    const std::optional<Seconds> pause =
        attempts_.pause(lost.empty() ? Circumstances::same : Circumstances::changed);
    if (!pause) return kFailedCode;
    const std::string wait = *pause > Seconds() ? ", in " + pp::to_text(*pause) : std::string();
    std::string what = attempts_.loss();
    for (const std::string& line : lost) what += "; " + line;
    if (lost.empty()) {
      cli::warn(what + "; " + attempts_.where_from() + wait);
    } else {
      cli::warn(what);
      auto next = next_plan(planning_, current_, fleet_.there(), fleet_.gone());
      if (const auto* const none = std::get_if<plan::Infeasible>(&next)) return give_up(*none);
      const PlacedPlan before = current_;
      adopt(std::get<PlacedPlan>(std::move(next)));
      const std::string promise =
          current_.file == before.file
              ? ""
              : promise_line(current_.plan, before.plan, before.plan.predicted.step) + "; ";
      cli::warn(promise + attempts_.where_from() + wait);
    }
    rest(*pause);
    if (cli::interrupted()) return kInterruptedCode;
    return std::nullopt;
  }

  /// Whether one is there, at last: none may answer for want of the launcher's own network.
  bool wait_for_a_host() {
    Patience patience(attempts_of(training_.restart));
    while (fleet_.there().empty()) {
      const std::vector<Host> away = fleet_.away();
      const std::optional<Seconds> pause = patience.after_loss(false);
      if (away.empty() || !pause) {
        cli::warn("no host answers, so this is the end");
        return false;
      }
      cli::warn("no host answers; they are asked again in " + pp::to_text(*pause));
      rest(*pause);
      if (cli::interrupted()) return false;
      const std::vector<std::optional<HostAnswer>> answers = ask(away);
      for (std::size_t i = 0; i < away.size(); ++i) fleet_.take_back(away[i].name, answers[i]);
    }
    return true;
  }

  int give_up(const plan::Infeasible& none) {
    cli::warn("no plan fits what is left (" + names(fleet_.there()) + "): " + none.reason);
    if (!none.remedy.empty()) cli::warn("this would fit: " + none.remedy);
    return static_cast<int>(cli::ExitCode::infeasible);
  }

  /// Goes on with this plan, and says so; one without a file gets one.
  void adopt(PlacedPlan next) {
    const bool same = next.file == current_.file;
    if (next.file.empty()) {
      next.file = (state_.folder() / ("plan-" + std::to_string(++plans_) + ".json")).string();
      write_file(next.file, dump_json(plan::to_json(next.plan)));
    }
    current_ = std::move(next);
    const std::string on = training_.launcher ? " on " + names(fleet_.there()) : "";
    cli::warn((same ? "the plan stays," : "the plan") + on + ": " + plan_line(current_.plan) + " (" +
              current_.file + ")");
  }

  /// With --rejoin: asks hosts that were lost. True when the training should stop for a better plan, next_.
  bool look_for_hosts() {
    if (!training_.rejoin) return false;
    if (probes_.empty()) {
      if (Clock::now() - asked_ < *training_.rejoin) return false;
      asked_ = Clock::now();
      for (const Host& host : fleet_.away())
        probes_.emplace_back(host.name,
                             HostProbe(*training_.launcher, host.name, training_.options.program, kProbe));
    }
    if (std::ranges::any_of(probes_, [](auto& probe) { return !probe.second.look(); })) return false;
    std::string back;
    for (auto& [name, probe] : std::exchange(probes_, std::vector<std::pair<std::string, HostProbe>>()))
      if (fleet_.take_back(name, probe.answer())) back += (back.empty() ? "" : ", ") + name;
    return !back.empty() && is_worth_it(back);
  }

  bool is_worth_it(const std::string& back) {
    auto next = better_plan();
    if (!next) {
      cli::inform("host " + back + " is back, to stand in for another: no plan would be faster");
      return false;
    }
    reason_ = "host " + back + " came back";
    promise_ = promise_line(next->plan, current_.plan, current_.plan.predicted.step);
    cli::warn("host " + back + " is back; the training stops with a checkpoint for " + plan_line(next->plan));
    next_ = std::move(next);
    return true;
  }

  /// With --rebalance: the same where devices are not as promised.
  bool look_at_devices() {
    if (!rebalancer_ || Clock::now() - looked_ < kSpeeds) return false;
    looked_ = Clock::now();
    auto decision = rebalancer_->look(state_.speeds(), state_.step(), current_);
    if (!decision) return false;
    (decision->next ? cli::warn : cli::inform)(decision->measured);
    if (!decision->next) return false;
    reason_ = decision->measured.substr(0, decision->measured.find(';'));
    promise_ = decision->promise;
    speeds_ = decision->next->speeds;
    next_ = {.plan = std::move(decision->next->plan), .file = "", .devices = current_.devices};
    if (training_.launcher) next_->ranks = ranks_on(next_->plan, fleet_.there());
    return true;
  }

  /// Nothing where what is there allows none.
  std::optional<PlacedPlan> better_plan() const {
    try {
      auto next = larger_plan(planning_, fleet_.there(), fleet_.gone());
      auto* const plan = std::get_if<PlacedPlan>(&next);
      if (plan && plan->plan.predicted.step < kWorth * current_.plan.predicted.step) return std::move(*plan);
    } catch (const Error&) {  // of a request that cannot be answered: the training goes on as it is
    }
    return std::nullopt;
  }

  int sum_up(int code) const {
    if (attempts_.lost().empty()) return code;
    std::int64_t again = 0;
    for (const run::LostAttempt& lost : attempts_.lost())
      again += lost.steps_done - lost.checkpoint.value_or(0);
    cli::inform(counted(std::ssize(attempts_.lost()) + 1, "start") + ", " + counted(again, "step") +
                " done again, " + pp::to_text(away_) + " from losses to training again");
    return code;
  }

  const KeptTraining& training_;
  Replanning planning_;
  Fleet fleet_;
  PlacedPlan current_;
  LaunchState state_;
  Attempts attempts_;
  std::optional<Rebalancer> rebalancer_;   ///< with --rebalance
  int plans_ = 1;                          ///< the first one is the user's
  std::optional<Clock::time_point> lost_;  ///< as long as nothing trains since
  Seconds away_{};
  std::string hosts_;               ///< of the last start
  std::optional<PlacedPlan> next_;  ///< for which the training was told to stop
  std::string reason_;              ///< why
  std::string promise_;             ///< of next_
  std::vector<double> speeds_;      ///< that next_ is for; empty: those of the plan that runs
  Clock::time_point looked_;
  std::vector<std::pair<std::string, HostProbe>> probes_;
  Clock::time_point asked_;
};

bool is(const std::string& argument, const std::string& option) {
  return argument == option || argument.starts_with(option + "=");
}

}  // namespace

std::optional<std::string> value_of(const std::vector<std::string>& arguments, const std::string& option) {
  const auto found =
      std::ranges::find_if(arguments, [&](const std::string& argument) { return is(argument, option); });
  if (found == arguments.end()) return std::nullopt;
  if (found->size() > option.size()) return found->substr(option.size() + 1);
  return found + 1 == arguments.end() ? std::nullopt : std::optional(found[1]);
}

std::vector<std::string> with_value(const std::vector<std::string>& arguments, const std::string& option,
                                    const std::string& value) {
  std::vector<std::string> all{option, value};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is(arguments[i], option)) all.push_back(arguments[i]);
    if (arguments[i] == option) ++i;  // and its value
  }
  return all;
}

int keep_going(const KeptTraining& training) {
  // Open MPI gives ranks a second after SIGTERM, one host after the other. Ours end by SIGUSR1, or are lost.
  setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
  return Supervisor(training).run();
}

}  // namespace pp::run_tool
