// pp-run train --keep-going --rebalance: a training on this machine that goes on with a plan for the speeds
// that its devices have.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "apps/run/keep_going/keep_going.h"
#include "apps/run/keep_going/launch_state.h"
#include "apps/run/keep_going/rebalance.h"

namespace pp::run_tool {

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

  /// Of the plan that the next start takes.
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
