// The options that training and checking share.
#pragma once

#include <memory>
#include <string>

#include "apps/cli/shell.h"
#include "librun/run.h"

namespace pp::run_tool {

struct PlanAndOptions {
  std::string plan;
  run::RunOptions run;
};

/// Adds PLAN, --data, the length of the run and the training settings.
void add_run_options(const cli::Command& command, PlanAndOptions& options);

}  // namespace pp::run_tool
