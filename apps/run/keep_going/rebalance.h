// --keep-going --rebalance: when measured speeds of devices are worth a new plan.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace pp::run_tool
