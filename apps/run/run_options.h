// The options that several commands share.
#pragma once

#include <string>

#include "apps/cli/shell.h"
#include "librun/run.h"

namespace pp::run_tool {

/// Adds PLAN, the data, weights to begin with, limits: what everything that executes a plan takes. `group`: of
/// those that are not about data.
void add_execution_options(const cli::Command& command, std::string& plan, run::ExecutionOptions& options,
                           const std::string& group);

struct PlanAndOptions {
  std::string plan;
  run::RunOptions run;
};

/// Adds these, the length of the run and the training settings, which training and checking share.
void add_run_options(const cli::Command& command, PlanAndOptions& options);

/// The files that a run reads are no file that the command writes.
void claim_data(const run::ExecutionOptions& options);

}  // namespace pp::run_tool
