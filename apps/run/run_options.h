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

/// Adds PLAN, the data, weights to begin with, limits: what everything that executes a plan takes. `group`: of
/// those that are not about data. Returns --data, which is required.
cli::Option add_execution_options(const cli::Command& command, PlanFiles& files, run::ExecutionOptions& run,
                                  const std::string& group);

struct PlanAndOptions {
  PlanFiles files;
  run::RunOptions run;
};

/// Adds these, the length of the run and the training settings, which training and checking share. Returns as
/// add_execution_options().
cli::Option add_run_options(const cli::Command& command, PlanAndOptions& options);

/// --rebalance TIME.
cli::Option add_rebalance(const cli::Command& command, std::optional<Seconds>& within);

/// The files that a run reads are no file that the command writes.
void claim_data(const run::ExecutionOptions& options);

}  // namespace pp::run_tool
