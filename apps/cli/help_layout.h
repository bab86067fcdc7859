// How the help looks: an option's name and value, then in a second column what it does, within the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace pp::cli {

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
