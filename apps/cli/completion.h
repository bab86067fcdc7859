// Completion scripts for shells, from what a tool understands: commands, options, the choices of a value, files
// for everything else.
#pragma once

#include <string>

#include "apps/cli/tool_words.h"
#include "libprofile/core/enum_names.h"

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
