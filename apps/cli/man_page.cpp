#include "apps/cli/man_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace pp::cli {
namespace {

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

}  // namespace

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

}  // namespace pp::cli
