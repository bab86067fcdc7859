#include "apps/cli/help_layout.h"

#include <algorithm>
#include <sstream>

#include "apps/cli/tool_words.h"

namespace pp::cli {

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  constexpr std::size_t kLeast = 20;  // of a line: a narrow terminal breaks lines itself
  const std::size_t room = std::max(width, indent + kLeast) - indent;
  std::string result, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > room) {
      result += line + '\n' + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return result + line;
}

std::string HelpLayout::make_option(const CLI::Option* option, bool is_positional) const {
  const OptionWords words = words_of(*option);
  std::string left = "  ";
  for (std::size_t i = 0; i < words.names.size(); ++i) left += (i > 0 ? ", " : "") + words.names[i];
  if (!is_positional && !words.value.empty()) left += " " + words.value;
  if (words.repeated) left += " ...";
  const std::string conditions = words.conditions();
  const std::string right = words.summary + (conditions.empty() ? "" : " (" + conditions + ")");
  const std::size_t column = get_column_width();
  left += left.size() + 1 < column ? std::string(column - left.size(), ' ') : "\n" + std::string(column, ' ');
  return left + wrapped(right, column, width_) + "\n";
}

}  // namespace pp::cli
