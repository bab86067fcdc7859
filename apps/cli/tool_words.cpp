#include "apps/cli/tool_words.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

namespace pp::cli {
namespace {

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
