// The options that several commands share.
#pragma once

#include <optional>
#include <string>

#include "apps/cli/shell.h"
#include "librun/run.h"

namespace pp::run_tool {

struct PlanFiles {
  std::string plan;
  std::string model;  ///< empty: the one that the plan carries
};
/// The plan, with that model in it. Throws pp::Error (data) where the plan is for another model.
plan::Plan load(const PlanFiles& files);

struct PlanAndOptions {
  PlanFiles files;
  run::RunOptions run;
};

/// PLAN and --model.
void add_plan_options(const cli::Command& command, PlanFiles& files);
/// These, and what training and checking are told.
void add_run_options(const cli::Command& command, PlanAndOptions& options);

/// --keep-going and what belongs to it.
struct RestartOptions {
  bool keep_going = false;
  std::optional<int> attempts;  ///< starts in a row that write no checkpoint; nothing: 3
  /// Within how long a new plan for measured speeds has to repay the restart; none: plans stay.
  std::optional<Seconds> rebalance;
  std::string profile;  ///< of which the plan was made; empty: not given
};
/// `when`: what --keep-going says of itself.
void add_restart_options(const cli::Command& command, RestartOptions& options, const std::string& when);
/// Throws pp::Error (usage) for an option without the one that it belongs to.
void check_restart(const RestartOptions& options);
/// Nothing where none was given. Throws pp::Error (data) where the plan was made from another one.
std::optional<Profile> load_profile(const RestartOptions& options, const plan::Plan& plan);

/// The files that a run reads are no file that the command writes.
void claim_data(const run::ExecutionOptions& options);

}  // namespace pp::run_tool
