// Text on its way to people: from documents, where what would steer a terminal is shown escaped and what is
// too long is cut (run_tool() puts an EscapingBuffer under stdout and stderr, so nothing gets past it), and
// of the help, in two columns within the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <streambuf>
#include <string>
#include <string_view>

namespace pp::cli {

enum class Keep {
  nothing,
  continued,  ///< line feeds in front of two spaces: messages go on so, and no name can begin one with them
  lines,      ///< line feeds and tabs
};

/// Stands for the escape character in the tools' own colour sequences on their way to an EscapingBuffer. No
/// UTF-8 has this byte, so no name of a document can hold it.
inline constexpr char kOwnEscape = '\xFF';

/// Marks the colour sequences of a text that holds no names as the tools' own.
std::string with_own_colors(std::string text);

/// Control characters as \u001b, the form that JSON knows. kOwnEscape stays.
std::string escaped(std::string_view text, Keep keep);

/// At most `limit` bytes of UTF-8: the end is kept, `...` stands for what is left out in the middle.
std::string shortened(std::string_view text, std::size_t limit);

/// A name within a line.
std::string shown(std::string_view name);

/// Hands everything on to `target`, escaped.
class EscapingBuffer : public std::streambuf {
 public:
  /// `colors`: whether the tools' own colour sequences become real ones at the moment.
  EscapingBuffer(std::streambuf& target, std::function<bool()> colors)
      : target_(target), colors_(std::move(colors)) {}
  /// errno of the first write that failed; 0: none has.
  int error() const { return error_; }

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  int sync() override;

 private:
  /// Keeps why a write has failed; returns `written`.
  bool noted(bool written);

  std::streambuf& target_;
  std::function<bool()> colors_;
  int error_ = 0;
};

/// `text` in lines of at most `width` columns, the later ones indented by `indent`; words are kept whole.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width);

class HelpLayout : public CLI::Formatter {
 public:
  explicit HelpLayout(std::size_t width) : width_(width) {}
  std::string make_option(const CLI::Option* option, bool is_positional) const override;

 private:
  std::size_t width_;
};

}  // namespace pp::cli
