// The commands that every tool has about itself: completion scripts and the manual page.
#pragma once

#include "apps/cli/shell.h"

namespace pp::cli {

/// `completion SHELL` and `manual`. The tool has its other commands already and outlives these.
void add_self_description(const Command& app, const Tool& tool, Shell& shell);

}  // namespace pp::cli
