// What a tool understands, as data, read once from its options: for help, and for the commands that every tool
// has about itself, completion scripts of shells and the manual page.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/shell.h"
#include "libprofile/core/enum_names.h"

namespace pp::cli {

struct OptionWords {
  std::vector<std::string> names;  ///< `-o`, `--output`; of a positional argument its name without dashes
  std::string value;               ///< `FILE`; empty: a flag
  std::string range;               ///< what the value must be: `from 1`
  std::string summary;
  std::string standard;              ///< the value where it is not given; empty: none
  std::vector<std::string> choices;  ///< all values, where there are few
  std::vector<std::string> excludes;
  std::string group;
  bool positional = false;
  bool required = false;
  bool repeated = false;

  /// `from 1; default 8; not with --nodes`; empty: nothing to say.
  std::string conditions() const;
};

struct CommandWords {
  std::string name;
  std::string summary;
  std::string footer;  ///< `Examples:` and a line each
  std::vector<OptionWords> options;
};

struct ToolWords {
  std::string name;
  std::string summary;
  std::string default_command;
  std::vector<CommandWords> commands;
};

OptionWords words_of(const CLI::Option& option);
ToolWords words_of(const CLI::App& app, const std::string& default_command);

/// The name of the check by which an option says its choices (CLI11 has no place for them).
inline constexpr const char* kChoices = "choices:";

/// `completion SHELL` and `manual`. The tool has its other commands already and outlives these.
void add_self_description(const Command& app, const Tool& tool, Shell& shell);

enum class ShellKind { bash, zsh, fish };

/// Without a command the options of the tool's default command are offered beside the commands.
std::string completion_script(const ToolWords& tool, ShellKind shell);

/// In section 1, in the man macros of roff: `pp-plan manual | man -l -`.
std::string man_page(const ToolWords& tool);

}  // namespace pp::cli

namespace pp {
template <>
struct EnumNames<cli::ShellKind> {
  static constexpr std::array table{std::pair{cli::ShellKind::bash, "bash"sv},
                                    std::pair{cli::ShellKind::zsh, "zsh"sv},
                                    std::pair{cli::ShellKind::fish, "fish"sv}};
};
}  // namespace pp
