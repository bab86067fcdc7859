// The subcommands of pp-plan, one file each.
#pragma once

#include "apps/cli/shell.h"

namespace pp::plan_tool {

void add_make(CLI::App& app, cli::Shell& shell);
void add_compare(CLI::App& app, cli::Shell& shell);
void add_export(CLI::App& app, cli::Shell& shell);
void add_show(CLI::App& app, cli::Shell& shell);
void add_check(CLI::App& app, cli::Shell& shell);
void add_simulate(CLI::App& app, cli::Shell& shell);
void add_schedules(CLI::App& app, cli::Shell& shell);
void add_sweep(CLI::App& app, cli::Shell& shell);

}  // namespace pp::plan_tool
