// The words of a tool, completion scripts and the manual page made from them.
#include "apps/cli/self_description.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <iostream>
#include <memory>
#include <sstream>
#include <string_view>

#include "apps/cli/options.h"

namespace pp::cli {

namespace {

struct Wanted {
  ShellKind shell = ShellKind::bash;
};
constexpr auto kWanted = options(option<&Wanted::shell>("shell", "which shell", {.required = true}));

template <std::size_t N>
void add_examples(const Command& command, Shell& shell, const std::array<std::string, N>& examples) {
  std::array<std::string_view, N> views;
  std::ranges::copy(examples, views.begin());
  add_common_options(command, shell, views);
}

void add_completion(const Command& app, const Tool& tool, Shell& shell) {
  const auto wanted = std::make_shared<Wanted>();
  const Command command = app.add_subcommand("completion", "print the script that completes this tool's words");
  add_options(command, kWanted, *wanted);
  add_examples(
      command, shell,
      std::array{tool.name + " completion bash > ~/.local/share/bash-completion/completions/" + tool.name,
                 tool.name + " completion zsh > ~/.zfunc/_" + tool.name,
                 tool.name + " completion fish > ~/.config/fish/completions/" + tool.name + ".fish"});
  command.final_callback([wanted, app, &tool] {
    std::cout << completion_script(words_of(app.app(), tool.default_command), wanted->shell);
  });
}

void add_manual(const Command& app, const Tool& tool, Shell& shell) {
  const Command command = app.add_subcommand("manual", "print the manual page, in roff");
  add_examples(command, shell,
               std::array{tool.name + " manual | man -l -", tool.name + " manual > " + tool.name + ".1",
                          tool.name + " manual | groff -man -Tpdf > " + tool.name + ".pdf"});
  command.final_callback([app, &tool] { std::cout << man_page(words_of(app.app(), tool.default_command)); });
}

/// `pp_plan` of `pp-plan`, a name that shells take for a function.
std::string function_of(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

/// In single quotes, for the shells: a quote within is left out of them.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::vector<std::string> command_names(const ToolWords& tool) {
  std::vector<std::string> names;
  for (const CommandWords& command : tool.commands) names.push_back(command.name);
  return names;
}

/// Names of the options that `wanted` is true of.
template <class Wanted>
std::vector<std::string> option_names(const CommandWords& command, Wanted wanted) {
  std::vector<std::string> names;
  for (const OptionWords& option : command.options) {
    if (!option.positional && wanted(option))
      names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

/// `COMMAND:OPTION` patterns of a case of bash.
std::string bash_pattern(const CommandWords& command, const std::vector<std::string>& options) {
  std::string pattern;
  for (const std::string& option : options)
    pattern += (pattern.empty() ? "" : "|") + command.name + ":" + option;
  return pattern;
}

std::string bash_script(const ToolWords& tool) {
  const std::string function = "_" + function_of(tool.name);
  std::string options, values;
  for (const CommandWords& command : tool.commands) {
    options += "    " + command.name +
               ") options=" + quoted(joined(option_names(command, [](const OptionWords&) { return true; }))) +
               " ;;\n";
    for (const OptionWords& option : command.options) {
      if (option.positional || option.choices.empty()) continue;
      values += "    " + bash_pattern(command, option.names) + ") COMPREPLY=($(compgen -W " +
                quoted(joined(option.choices)) + " -- \"$word\")); return ;;\n";
    }
    const auto free = option_names(
        command, [](const OptionWords& option) { return !option.value.empty() && option.choices.empty(); });
    if (!free.empty())
      values += "    " + bash_pattern(command, free) +
                ") mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return ;;\n";
  }
  return "# bash completion of " + tool.name + "\n" + function + "() {\n" +
         "  COMPREPLY=()\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local command=" +
         tool.default_command + " commands=" + quoted(joined(command_names(tool))) +
         " options name\n"
         "  for name in $commands; do [ \"${COMP_WORDS[1]}\" != \"$name\" ] || [ \"$COMP_CWORD\" = 1 ] || "
         "command=$name; done\n"
         "  case $command:$before in\n" +
         values + "  esac\n  case $command in\n" + options +
         "  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "  else\n"
         "    [ \"$COMP_CWORD\" != 1 ] || COMPREPLY=($(compgen -W \"$commands\" -- \"$word\"))\n"
         "    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$word\")\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F " +
         function + " " + tool.name + "\n";
}

/// Within `[...]` of _arguments, quoted already.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_arguments(const CommandWords& command) {
  std::string text = "_arguments";
  for (const OptionWords& option : command.options) {
    if (option.positional) continue;
    const std::string action = option.choices.empty() ? "_files" : "(" + joined(option.choices) + ")";
    const std::string value = option.value.empty() ? "" : ":" + zsh_text(option.value) + ":" + action;
    for (const std::string& name : option.names)
      text += " \\\n        " + quoted(name + "[" + zsh_text(option.summary) + "]" + value);
  }
  return text + " \\\n        '*:file:_files'";
}

std::string zsh_script(const ToolWords& tool) {
  const std::string function = "_" + function_of(tool.name);
  std::string cases, commands;
  for (const CommandWords& command : tool.commands) {
    cases += "      " + command.name + ") " + zsh_arguments(command) + " ;;\n";
    commands += " " + quoted(command.name + ":" + command.summary);
  }
  return "#compdef " + tool.name + "\n" + function + "() {\n  local -a commands=(" + commands +
         ")\n"
         "  local command=" +
         tool.default_command +
         "\n"
         "  if (( CURRENT > 2 )) && (( ${commands[(I)${words[2]}:*]} )); then\n"
         "    command=${words[2]}\n"
         "    shift words\n"
         "    (( CURRENT-- ))\n"
         "  elif (( CURRENT == 2 )) && [[ ${words[2]} != -* ]]; then\n"
         "    _describe command commands\n"
         "  fi\n"
         "  case $command in\n" +
         cases + "  esac\n}\nif [ \"${funcstack[1]}\" = " + function + " ]; then " + function +
         " \"$@\"; else compdef " + function + " " + tool.name + "; fi\n";
}

std::string fish_script(const ToolWords& tool) {
  const std::string names = joined(command_names(tool));
  std::string text = "# fish completion of " + tool.name + "\n";
  for (const CommandWords& command : tool.commands) {
    text += "complete -c " + tool.name + " -n __fish_use_subcommand -a " + command.name + " -d " +
            quoted(command.summary) + "\n";
    const bool standard = command.name == tool.default_command;
    const std::string condition = standard ? "not __fish_seen_subcommand_from " + names + "; or " : "";
    for (const OptionWords& option : command.options) {
      if (option.positional) continue;
      text += "complete -c " + tool.name + " -n " +
              quoted(condition + "__fish_seen_subcommand_from " + command.name);
      for (const std::string& name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.value.empty())
        text += option.choices.empty() ? " -r -F" : " -x -a " + quoted(joined(option.choices));
      text += " -d " + quoted(option.summary) + "\n";
    }
  }
  return text;
}

/// Text as roff prints it: dashes as they are typed, no control at the beginning of a line.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string option_entry(const OptionWords& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
  if (!option.value.empty() && !option.positional) names += " \\fI" + roff(option.value) + "\\fR";
  const std::string conditions = option.conditions();
  return ".TP\n" + names + (option.repeated ? " ..." : "") + "\n" + roff(option.summary) +
         (conditions.empty() ? "" : " (" + roff(conditions) + ")") + "\n";
}

/// The options by group, in the order of the table.
std::string options_of(const CommandWords& command) {
  std::string text;
  for (const OptionWords& option : command.options)
    if (option.positional) text += option_entry(option);
  std::vector<std::string> groups;
  for (const OptionWords& option : command.options) {
    if (!option.positional && std::ranges::find(groups, option.group) == groups.end())
      groups.push_back(option.group);
  }
  for (const std::string& group : groups) {
    if (group.empty()) continue;
    text += ".PP\n\\fI" + roff(group) + "\\fR\n";
    for (const OptionWords& option : command.options)
      if (!option.positional && option.group == group) text += option_entry(option);
  }
  return text;
}

/// `Examples:` and a line each, as typed.
std::string examples_of(const std::string& footer) {
  if (footer.empty()) return {};
  std::string text = ".PP\n.nf\n";
  std::istringstream lines(footer);
  for (std::string line; std::getline(lines, line);) text += roff(line) + "\n";
  return text + ".fi\n";
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// The checks of an option are counted from 0 until there is none.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string_view prefix = kChoices;
  auto& checked = const_cast<CLI::Option&>(option);  // get_validator() is not const
  for (int i = 0;; ++i) {
    try {
      const std::string name = checked.get_validator(i)->get_name();
      if (name.starts_with(prefix)) return split(name.substr(prefix.size()), ',');
    } catch (const CLI::OptionNotFound&) {
      return {};
    }
  }
}

/// `FROM 1` of `INT:FROM 1`, in small letters.
std::string range_of(const std::string& type) {
  const std::size_t colon = type.find(':');
  std::string range = colon == type.npos ? "" : type.substr(colon + 1);
  std::ranges::transform(range, range.begin(), [](unsigned char c) { return std::tolower(c); });
  return range;
}

}  // namespace

void add_self_description(const Command& app, const Tool& tool, Shell& shell) {
  add_completion(app, tool, shell);
  add_manual(app, tool, shell);
}

std::string completion_script(const ToolWords& tool, ShellKind shell) {
  switch (shell) {
    case ShellKind::bash: return bash_script(tool);
    case ShellKind::zsh: return zsh_script(tool);
    case ShellKind::fish: return fish_script(tool);
  }
  return {};
}

std::string man_page(const ToolWords& tool) {
  std::string page = ".TH " + upper(roff(tool.name)) + " 1 \"\" \"" + tool.name + " " PP_VERSION "\"\n";
  page += ".SH NAME\n" + roff(tool.name) + " \\- " + roff(tool.summary) + "\n";
  page += ".SH SYNOPSIS\n\\fB" + roff(tool.name) + "\\fR [\\fICOMMAND\\fR] [\\fIOPTIONS\\fR]\n";
  page +=
      ".SH DESCRIPTION\nWithout a command, \\fB" + roff(tool.default_command) +
      "\\fR. `\\-` as an input file is standard input. With \\fB\\-\\-json\\fR the result on standard output "
      "is JSON.\n";
  for (const CommandWords& command : tool.commands) {
    page += ".SH " + upper(roff(tool.name + " " + command.name)) + "\n" + roff(command.summary) + "\n";
    page += options_of(command) + examples_of(command.footer);
  }
  page +=
      ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nthe run failed\n.TP\n2\nusage or bad input\n.TP\n3\nno feasible "
      "plan\n.TP\n130\ninterrupted\n";
  return page;
}

std::string OptionWords::conditions() const {
  std::string text = required ? "required" : "";
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (!range.empty()) add(range);
  if (!standard.empty()) add("default " + standard);
  for (std::size_t i = 0; i < excludes.size(); ++i) {
    if (i == 0)
      add("not with " + excludes[i]);
    else
      text += ", " + excludes[i];
  }
  return text;
}

OptionWords words_of(const CLI::Option& option) {
  OptionWords words;
  words.positional = option.get_positional();
  if (words.positional) {
    words.names.push_back(option.get_name(true));
  } else {
    for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  }
  if (option.get_type_size() != 0) {
    const std::string type = option.get_type_name();
    words.value = type.substr(0, type.find(':'));
    words.range = range_of(type);
    words.standard = option.get_default_str();
  }
  words.summary = option.get_description();
  words.choices = choices_of(option);
  for (const CLI::Option* other : option.get_excludes()) words.excludes.push_back(other->get_name());
  std::ranges::sort(words.excludes);
  words.group = option.get_group();
  words.required = option.get_required();
  words.repeated = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  return words;
}

ToolWords words_of(const CLI::App& app, const std::string& default_command) {
  ToolWords tool{app.get_name(), app.get_description(), default_command, {}};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandWords& words = tool.commands.emplace_back();
    words.name = command->get_name();
    words.summary = command->get_description();
    words.footer = command->get_footer();
    for (const CLI::Option* option : command->get_options()) words.options.push_back(words_of(*option));
  }
  return tool;
}

}  // namespace pp::cli
