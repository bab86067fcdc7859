// What the three tools share around their subcommands: common options, exit codes, error messages, help layout.
// stdout is the result and nothing else; everything said on the way goes to stderr.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/command.h"
#include "libprofile/core/enum_names.h"
#include "libprofile/core/error.h"

namespace pp::cli {

/// 0 done, 1 the run failed, 2 usage or bad input, 3 no feasible plan, 130 interrupted.
enum class ExitCode { done = 0, failed = 1, usage = 2, infeasible = 3, interrupted = 130 };

ExitCode exit_code_of(ErrorKind kind);

enum class ColorMode { automatic, always, never };

/// State of one invocation, handed to every subcommand.
struct Shell {
  std::string tool;          ///< `pp-plan`
  std::string command_line;  ///< as typed, for the context of measured documents
  bool json = false;
  bool quiet = false;
  int verbosity = 0;
  ColorMode color = ColorMode::automatic;
  ExitCode exit_code = ExitCode::done;
};

/// Adds --json, -q, -v, --color to a subcommand, and its examples to the end of its help.
void add_common_options(const Command& command, Shell& shell, std::span<const std::string_view> examples);

struct Tool {
  std::string name;
  std::string summary;
  /// Taken when the first argument is not the name of a subcommand: `pp-plan profile.json` is `pp-plan make
  /// profile.json`.
  std::string default_command;
  std::vector<std::string_view> examples;
  /// Options that only pp-plan has: its plan, not this tool, decides.
  std::vector<std::string_view> options_of_plan = {};
  /// Names and versions of what the build has; an empty version: it has not.
  std::function<std::vector<std::pair<std::string, std::string>>()> parts = {};
  std::function<void(const Command&, Shell&)> add_commands;
};

/// Parses, runs the chosen subcommand, turns exceptions into one line on stderr and an exit code. The whole of
/// main().
int run_tool(const Tool& tool, int argc, char** argv);

/// Whether to use colour on stdout: --color, then NO_COLOR and TERM=dumb, then whether it is a terminal.
bool use_color(const Shell& shell);

/// Columns of the terminal that stdout is, at most 200; 100 where it is none.
int terminal_width();

/// `pp-plan: TEXT` on stderr, whatever names the text holds: control characters, and line feeds that no two
/// spaces follow, are shown escaped, and more than 4,000 bytes are cut in the middle.
void say(const std::string& tool, std::string_view text);

}  // namespace pp::cli

namespace pp {
template <>
struct EnumNames<cli::ColorMode> {
  static constexpr std::array table{std::pair{cli::ColorMode::automatic, "auto"sv},
                                    std::pair{cli::ColorMode::always, "always"sv},
                                    std::pair{cli::ColorMode::never, "never"sv}};
};
}  // namespace pp
