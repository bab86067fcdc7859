#include "apps/cli/completion.h"

#include <algorithm>

namespace pp::cli {
namespace {

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

}  // namespace

std::string completion_script(const ToolWords& tool, ShellKind shell) {
  switch (shell) {
    case ShellKind::bash: return bash_script(tool);
    case ShellKind::zsh: return zsh_script(tool);
    case ShellKind::fish: return fish_script(tool);
  }
  return {};
}

}  // namespace pp::cli
