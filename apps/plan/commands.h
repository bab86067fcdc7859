// The subcommands of pp-plan, one file each.
#pragma once

#include "apps/cli/shell.h"

namespace pp::plan_tool {

void add_make(const cli::Command& app, cli::Shell& shell);
void add_price(const cli::Command& app, cli::Shell& shell);
void add_compare(const cli::Command& app, cli::Shell& shell);
void add_export(const cli::Command& app, cli::Shell& shell);
void add_show(const cli::Command& app, cli::Shell& shell);
void add_check(const cli::Command& app, cli::Shell& shell);
void add_simulate(const cli::Command& app, cli::Shell& shell);
void add_schedules(const cli::Command& app, cli::Shell& shell);
void add_sweep(const cli::Command& app, cli::Shell& shell);

}  // namespace pp::plan_tool
