#include "apps/cli/terminal_text.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <sstream>

#include "apps/cli/self_description.h"

namespace pp::cli {

namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

/// The control character at the front of `text` and its bytes; {0, 0}: there is none. U+0080 to U+009F have
/// two.
std::pair<unsigned, std::size_t> control_at(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x20 || first == 0x7F) return {first, 1};
  const unsigned second = text.size() > 1 ? static_cast<unsigned char>(text[1]) : 0;
  if (first == 0xC2 && second >= 0x80 && second < 0xA0) return {second, 2};
  return {0, 0};
}

}  // namespace

std::string escaped(std::string_view text, Keep keep) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [control, length] = control_at(text);
    const bool line = (keep == Keep::lines && (text.front() == '\n' || text.front() == '\t')) ||
                      (keep == Keep::continued && text.starts_with("\n  "));
    const std::size_t taken = std::max<std::size_t>(1, length);
    if (length > 0 && !line) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", control);
      out += code;
    } else {
      out += text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
  return out;
}

std::string with_own_colors(std::string text) {
  std::ranges::replace(text, '\033', kOwnEscape);
  return text;
}

std::string shortened(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  std::size_t head = (limit - 3) * 2 / 3;
  std::size_t tail = text.size() - (limit - 3 - head);
  while (head > 0 && continues(text[head])) --head;
  while (tail < text.size() && continues(text[tail])) ++tail;
  return std::string(text.substr(0, head)) + "..." + std::string(text.substr(tail));
}

std::string shown(std::string_view name) {
  constexpr std::size_t kLongest = 60;
  return shortened(escaped(name, Keep::nothing), kLongest);
}

EscapingBuffer::int_type EscapingBuffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char text = traits_type::to_char_type(c);
  return xsputn(&text, 1) == 1 ? c : traits_type::eof();
}

std::streamsize EscapingBuffer::xsputn(const char* text, std::streamsize count) {
  const std::string_view view(text, static_cast<std::size_t>(count));
  std::string out = escaped(view, Keep::lines);
  if (colors_()) std::ranges::replace(out, kOwnEscape, '\033');
  const auto size = static_cast<std::streamsize>(out.size());
  return noted(target_.sputn(out.data(), size) == size) ? count : 0;
}

int EscapingBuffer::sync() { return noted(target_.pubsync() == 0) ? 0 : -1; }

bool EscapingBuffer::noted(bool written) {
  if (!written && error_ == 0) error_ = errno;
  return written;
}

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
