// Options by their rows, and lists of counts.
#include "apps/cli/options.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <sstream>
#include <system_error>

namespace pp::cli {

namespace {

/// Flags and lists, whose fields CLI11 sets by itself.
Option add_native(const Command& command, const OptionRow& row, const std::string& help, void* field) {
  const std::string names(row.names);
  if (row.type->kind == OptionType::Kind::flag)
    return command.add_flag(names, *static_cast<bool*>(field), help);
  const Option option = command.add_option(names, *static_cast<std::vector<std::string>*>(field), help);
  option.default_str(std::string(row.standard));
  if (row.separator != 0) option.delimiter(row.separator);
  return row.names.starts_with('-') ? option.allow_extra_args(false) : option;
}

Option add_text(const Command& command, const OptionRow& row, const std::string& help, void* options) {
  using Kind = OptionType::Kind;
  const auto take = [&row, options](const std::string& text) { row.type->read(row, text, row.field(options)); };
  const Option option = command.add_option_function(std::string(row.names), take, help);
  option.default_str(standard_of(row, options));
  if (row.type->kind != Kind::whole && row.type->kind != Kind::number) return option;
  const bool bounded = row.least > std::numeric_limits<double>::lowest();
  const std::string range = !bounded ? ""
                            : row.type->kind == Kind::number
                                ? "NUMBER"
                                : "FROM " + std::to_string(static_cast<std::int64_t>(row.least));
  return option.check({[&row](const std::string& text) { return problem_of(row, text); }, range, "number"});
}

}  // namespace

Option add_option(const Command& command, const OptionRow& row, void* options) {
  using Kind = OptionType::Kind;
  const Kind kind = row.type->kind;
  std::string help(row.help);
  std::vector<std::string> choices;
  if (row.values)
    choices = row.values();
  else if (row.type->choices)
    choices = row.type->choices();
  for (std::size_t i = 0; i < choices.size(); ++i) help += (i == 0 ? ": " : ", ") + choices[i];
  const Option option = kind == Kind::flag || kind == Kind::list
                            ? add_native(command, row, help, row.field(options))
                            : add_text(command, row, help, options);
  if (!row.group.empty()) option.group(row.group == kNotInHelp ? "" : std::string(row.group));
  if (kind != Kind::flag) option.type_name(std::string(value_word(row)));
  if (!choices.empty()) option.choices(choices);
  std::istringstream others{std::string(row.not_with)};
  for (std::string other; std::getline(others, other, ',');) option.excludes(command.option(other));
  return option.required(row.required);
}

std::vector<int> parse_counts(const std::string& text, char separator, const std::string& option) {
  std::vector<int> counts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    int value = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc() || rest != text.data() + end || value < 1) {
      throw Error(ErrorKind::usage, option + ": \"" + text.substr(begin, end - begin) +
                                        "\" is not a whole number of at least 1; write for example 1" +
                                        separator + "2");
    }
    counts.push_back(value);
    begin = end + 1;
  }
  return counts;
}

}  // namespace pp::cli
