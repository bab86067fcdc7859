// What a tool understands, as data: the option tables read once for help, completion and manual pages.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

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

}  // namespace pp::cli
