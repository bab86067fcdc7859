// The subcommands of pp-run, one file each.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/shell.h"

namespace pp::run_tool {

class Ranks;

/// `ranks` are joined by the training, and by check --warm. `words`: what was typed behind the program, which
/// --keep-going starts again.
void add_train(const cli::Command& app, cli::Shell& shell, Ranks& ranks, std::vector<std::string> words);
void add_infer(const cli::Command& app, cli::Shell& shell);
void add_check(const cli::Command& app, cli::Shell& shell, Ranks& ranks);
void add_launch(const cli::Command& app, cli::Shell& shell);
void add_devices(const cli::Command& app, cli::Shell& shell);
void add_report(const cli::Command& app, cli::Shell& shell);

}  // namespace pp::run_tool
