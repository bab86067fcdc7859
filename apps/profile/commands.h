// The subcommands of pp-profile, one file each.
#pragma once

#include "apps/cli/shell.h"

namespace pp::profile_tool {

void add_run(CLI::App& app, cli::Shell& shell);
void add_links(CLI::App& app, cli::Shell& shell);
void add_models(CLI::App& app, cli::Shell& shell);
void add_show(CLI::App& app, cli::Shell& shell);
void add_diff(CLI::App& app, cli::Shell& shell);
void add_merge(CLI::App& app, cli::Shell& shell);
void add_import(CLI::App& app, cli::Shell& shell);

}  // namespace pp::profile_tool
