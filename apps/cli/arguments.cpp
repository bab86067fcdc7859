#include "apps/cli/arguments.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/text.h"

namespace pp::cli {

namespace {

/// `; did you mean --steps? See`, or `; see`.
std::string hint(const std::string& near, std::string see) {
  if (near.empty()) return "; " + see;
  see.front() = static_cast<char>(std::toupper(see.front()));
  return "; did you mean " + near + "? " + see;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// Walks one command's arguments as CLI11 will.
class Walk {
 public:
  Walk(const CLI::App& app, const CLI::App& command, std::span<const std::string_view> of_plan)
      : app_(app), command_(command), of_plan_(of_plan) {}

  /// The arguments that are no options and no option's value. Throws pp::Error (usage) at an unknown option.
  std::vector<std::string> positionals(std::span<const std::string> arguments) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (argument == "--") {
        words.insert(words.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
        break;
      }
      if (argument.size() < 2 || argument.front() != '-') {
        words.push_back(argument);
      } else {
        i += argument[1] == '-' ? after_long(argument) : after_short(argument);
      }
    }
    return words;
  }

 private:
  static std::size_t values_of(const CLI::Option& option) {
    return static_cast<std::size_t>(std::max(option.get_items_expected_min(), 0));
  }

  [[noreturn]] void unknown(const std::string& argument) const {
    const std::string name = argument.substr(0, argument.find('='));
    if (std::ranges::find(of_plan_, name) != of_plan_.end()) {
      throw Error(ErrorKind::usage,
                  name + " belongs to the plan: make it with pp-plan " + name + ", then run what it writes");
    }
    const std::string wanted = name.starts_with("--") ? name : "-" + name;
    throw Error(ErrorKind::usage, "unknown option " + name +
                                      hint(nearest_name(wanted, option_names(command_)),
                                           "see " + app_.get_name() + " " + command_.get_name() + " --help"));
  }

  /// How many arguments behind it are its values.
  std::size_t after_long(const std::string& argument) const {
    const std::size_t equals = argument.find('=');
    const CLI::Option* option = command_.get_option_no_throw(argument.substr(0, equals));
    if (option == nullptr) unknown(argument);
    return equals == std::string::npos ? values_of(*option) : 0;
  }

  /// The same for `-q`, `-qv`, `-o FILE`, `-oFILE`.
  std::size_t after_short(const std::string& argument) const {
    for (std::size_t c = 1; c < argument.size(); ++c) {
      const CLI::Option* option = command_.get_option_no_throw(std::string("-") + argument[c]);
      if (option == nullptr) unknown(argument);
      if (values_of(*option) > 0) return c + 1 == argument.size() ? values_of(*option) : 0;
    }
    return 0;
  }

  const CLI::App& app_;
  const CLI::App& command_;
  std::span<const std::string_view> of_plan_;
};

std::size_t places_of(const CLI::App& command) {
  std::size_t places = 0;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) places += static_cast<std::size_t>(option->get_items_expected_max());
  }
  return places;
}

/// Letters and dashes only, and no file: it may have been meant as a command.
bool looks_like_command(const std::string& word) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || c == '-'; };
  std::error_code ignored;
  return std::ranges::all_of(word, allowed) && !std::filesystem::exists(word, ignored);
}

[[noreturn]] void unknown_command(const CLI::App& app, const std::string& word) {
  std::string all;
  for (const std::string& name : command_names(app)) all += (all.empty() ? "" : ", ") + name;
  throw Error(ErrorKind::usage, "unknown command " + word +
                                    hint(nearest_name(word, command_names(app)), "the commands are " + all));
}

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::vector<std::string> complete_arguments(const CLI::App& app, const std::string& default_command,
                                            std::span<const std::string_view> of_plan,
                                            std::vector<std::string> typed) {
  const std::string& first = typed.front();
  if (first == "-h" || first == "--help" || first == "--version") return typed;
  const std::vector<std::string> commands = command_names(app);
  const bool named = std::ranges::find(commands, first) != commands.end();
  const bool mistyped = !named && !first.starts_with('-') && looks_like_command(first);
  if (mistyped && !nearest_name(first, commands).empty()) unknown_command(app, first);

  const CLI::App& command = *app.get_subcommand(named ? first : default_command);
  const std::vector<std::string> words =
      Walk(app, command, of_plan).positionals(std::span(typed).subspan(named ? 1 : 0));
  if (mistyped && words.size() > 1) unknown_command(app, first);
  if (const std::size_t places = places_of(command); words.size() > places) {
    throw Error(ErrorKind::usage, "\"" + words[places] + "\" is one argument too many; see " + app.get_name() +
                                      " " + command.get_name() + " --help");
  }
  if (!named) typed.insert(typed.begin(), default_command);
  return typed;
}

std::string shipped_document(const std::string& typed, const std::string& folder, const std::string& option) {
  std::error_code none;
  if (typed.empty() || typed == "-" || typed.find_first_of("/.") != typed.npos || fs::exists(typed, none))
    return typed;
  const fs::path place = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share/pp" / folder;
  const std::vector<std::string> names = names_in(place);
  const auto found = std::ranges::find(names, in_small_letters(typed));
  if (found != names.end()) return place / (*found + ".json");
  if (names.empty()) throw Error(ErrorKind::usage, option + ": there is no file " + typed);
  throw Error(ErrorKind::usage, option + ": " + unknown_name(typed, names) + ", or a file");
}

}  // namespace pp::cli
