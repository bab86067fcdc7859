#include "apps/run/keep_going/rebalanced_training.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/cli/log.h"
#include "libprofile/core/file.h"

namespace pp::run_tool {

RebalancedTraining::RebalancedTraining(BalanceJob job)
    : planning_{.first = {.plan = std::move(job.first), .file = std::move(job.file)},
                .profile = std::move(job.profile)},
      current_(planning_.first),
      state_(std::move(job.folder)),
      rebalancer_(planning_, job.within) {}

void RebalancedTraining::begin() {
  state_.begin(0, {});
  rebalancer_.begin();
  first_step_.reset();
  trains_ = false;
  next_.reset();
}

std::optional<std::string> RebalancedTraining::stop(std::int64_t step) {
  if (!first_step_) first_step_ = step;
  if (step <= *first_step_) return std::nullopt;
  if (!trains_) rebalancer_.trains();
  trains_ = true;
  std::optional<Rebalancer::Decision> decision = rebalancer_.look(state_.speeds(), step, current_);
  if (!decision) return std::nullopt;
  (decision->next ? cli::warn : cli::inform)(decision->measured);
  if (!decision->next) return std::nullopt;
  next_ = std::move(decision);
  return next_->measured.substr(0, next_->measured.find(';'));
}

void RebalancedTraining::stopped() {
  planning_.speeds = next_->next->speeds;
  current_.plan = std::move(next_->next->plan);
  current_.file = (state_.folder() / ("plan-" + std::to_string(++plans_) + ".json")).string();
  write_file(current_.file, dump_json(plan::to_json(current_.plan)));
  cli::warn("the plan: " + plan_line(current_.plan) + " (" + current_.file + ")");
  cli::warn(next_->promise);
}

std::string RebalancedTraining::plan() const {
  return plan_line(current_.plan) + " (" + plan::plan_hash(current_.plan) + ")";
}

}  // namespace pp::run_tool
