// The subcommands of pp-profile, one file each.
#pragma once

#include "apps/cli/shell.h"

namespace pp::profile_tool {

void add_run(const cli::Command& app, cli::Shell& shell);
void add_estimate(const cli::Command& app, cli::Shell& shell);
void add_fit(const cli::Command& app, cli::Shell& shell);
void add_links(const cli::Command& app, cli::Shell& shell);
void add_models(const cli::Command& app, cli::Shell& shell);
void add_show(const cli::Command& app, cli::Shell& shell);
void add_diff(const cli::Command& app, cli::Shell& shell);
void add_merge(const cli::Command& app, cli::Shell& shell);
void add_import(const cli::Command& app, cli::Shell& shell);
void add_schema(const cli::Command& app, cli::Shell& shell);

}  // namespace pp::profile_tool
