// The commands that every tool has about itself, made from its option tables: completion scripts for shells
// and the manual page.
#pragma once

#include <string>

#include "apps/cli/shell.h"
#include "apps/cli/tool_words.h"
#include "libprofile/core/enum_names.h"

namespace pp::cli {

/// `completion SHELL` and `manual`. The tool has its other commands already and outlives these.
void add_self_description(const Command& app, const Tool& tool, Shell& shell);

}  // namespace pp::cli

namespace pp::cli {

enum class ShellKind { bash, zsh, fish };

/// Without a command the options of the tool's default command are offered beside the commands.
std::string completion_script(const ToolWords& tool, ShellKind shell);

}  // namespace pp::cli

namespace pp {
template <>
struct EnumNames<cli::ShellKind> {
  static constexpr std::array table{std::pair{cli::ShellKind::bash, "bash"sv},
                                    std::pair{cli::ShellKind::zsh, "zsh"sv},
                                    std::pair{cli::ShellKind::fish, "fish"sv}};
};
}  // namespace pp

namespace pp::cli {

/// In section 1, in the man macros of roff: `pp-plan manual | man -l -`.
std::string man_page(const ToolWords& tool);

}  // namespace pp::cli
