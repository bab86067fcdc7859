// pp-run train --keep-going --rebalance: when measured speeds of devices are worth a new plan, and a
// training on this machine that goes on with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/keep_going/keep_going.h"
#include "apps/run/keep_going/next_plan.h"

namespace pp::run_tool {

/// Another plan for the same devices, at the speeds that were measured.
struct BalancedPlan {
  plan::Plan plan;
  std::vector<double> speeds;  ///< of the first plan's devices
  Seconds before{};            ///< what the plan that runs promises at these speeds, per step
};

/// The best plan where the devices of `current` are as much slower as `factors` says of its workers' (factors
/// within plan::kSameSpeed are noise). Nothing where none is slower or faster, or where no plan is found.
/// Throws pp::Error (usage) where the request cannot be answered. `job` has a profile.
std::optional<BalancedPlan> balanced_plan(const Replanning& job, const PlacedPlan& current,
                                          const std::vector<double>& factors);

/// What steps that are shorter by `after`/`before` save of the time to come: of `within`, or of the `steps`
/// that are left where they end before.
Seconds saved_time(Seconds before, Seconds after, Seconds within, std::int64_t steps);

/// Asks for a better plan when a training says that its devices are not as promised, and says what comes of it.
class Rebalancer {
 public:
  /// A restart is worth it when it is repaid within this time. `job` must outlive it.
  Rebalancer(Replanning& job, Seconds within) : job_(job), within_(within) {}

  /// A start begins.
  void begin();
  /// Its first step is done, so that it is known what starts take.
  void trains();
  struct Decision {
    std::string measured;  ///< a line: what was found, and what comes of it
    std::optional<BalancedPlan> next = std::nullopt;
    std::string promise = {};  ///< a line: what `next` promises
  };
  /// `told` at `step`, again and again; nothing: all has been said. Once a plan was changed that has to repay
  /// before the next one is asked for.
  std::optional<Decision> look(const std::optional<ToldSpeeds>& told, std::int64_t step,
                               const PlacedPlan& current);

 private:
  using Clock = std::chrono::steady_clock;

  Replanning& job_;
  Seconds within_;
  Clock::time_point begin_;
  std::optional<Seconds> restart_;  ///< what the last start took until its first step
  std::optional<Clock::time_point> changed_;
  std::vector<double> answered_;  ///< factors
};

struct BalanceJob {
  plan::Plan first;
  std::string file;              ///< of that plan
  Profile profile;               ///< from which it was made
  std::filesystem::path folder;  ///< for what the training says, and for new plans
  Seconds within{};              ///< a new plan has to repay the restart
};

class RebalancedTraining final : public OtherPlans {
 public:
  /// Throws pp::Error (usage) where the folder cannot be made.
  explicit RebalancedTraining(BalanceJob job);
  RebalancedTraining(const RebalancedTraining&) = delete;
  RebalancedTraining& operator=(const RebalancedTraining&) = delete;

  /// The file of the plan that the next start takes.
  const std::string& file() const { return current_.file; }

  void begin() override;
  std::optional<std::string> stop(std::int64_t step) override;
  void stopped() override;
  std::string plan() const override;

 private:
  Replanning planning_;
  PlacedPlan current_;
  LaunchState state_;
  Rebalancer rebalancer_;
  std::optional<std::int64_t> first_step_;  ///< of the start that runs
  bool trains_ = false;
  std::optional<Rebalancer::Decision> next_;  ///< for which it was told to stop
  int plans_ = 1;                             ///< the first one is the user's
};

}  // namespace pp::run_tool
