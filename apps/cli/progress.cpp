#include "apps/cli/progress.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"

namespace pp::cli {

namespace {

/// Past the escaping of std::cerr, which would show it.
void erase_line() { std::fputs("\r\033[K", stderr); }

/// Columns of stderr.
std::size_t width_of_terminal() {
  constexpr std::size_t kUsual = 80;
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

std::string padded_bar(double share, std::size_t width) {
  std::string text = bar(share, static_cast<int>(width));
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  return text + std::string(width - static_cast<std::size_t>(std::ranges::count_if(text, starts)), ' ');
}

/// `parts` without the last ones that do not fit.
std::string_view fitting(std::string_view parts, std::size_t width) {
  while (parts.size() > width) {
    const std::size_t comma = parts.rfind(", ");
    if (comma == std::string_view::npos) return parts.substr(0, width);
    parts = parts.substr(0, comma);
  }
  return parts;
}

}  // namespace

std::string progress_text(std::string_view phase, double done, std::string_view detail, std::size_t width) {
  constexpr std::size_t kLongestBar = 24, kShortestBar = 6, kBrackets = 3;
  const std::string share = ' ' + percent(done) + "  ";
  const std::size_t others = phase.size() + share.size();
  if (others > width) return std::string(phase.substr(0, width));
  std::string text(phase);
  const std::size_t all = others + kBrackets + detail.size();
  if (all + kShortestBar <= width) {
    const std::size_t length = std::min(width - all, kLongestBar);
    text += " [" + padded_bar(done, length) + ']';
  }
  return text + share + std::string(fitting(detail, width - others));
}

ProgressLine::ProgressLine(const Shell& shell) {
  const char* term = std::getenv("TERM");
  const bool terminal = isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
  style_ = shell.quiet ? Style::none : terminal ? Style::line : Style::phases;
}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::update(std::string_view phase, double done, std::string_view detail) {
  if (style_ == Style::phases && phase != phase_) inform(phase);
  const auto now = std::chrono::steady_clock::now();
  const bool due = phase != phase_ || now - last_ >= std::chrono::milliseconds(100);
  phase_ = phase;
  if (style_ != Style::line || !due) return;
  last_ = now;
  shown_ = true;
  erase_line();
  std::cerr << progress_text(phase, done, detail, width_of_terminal() - 1) << std::flush;
}

void ProgressLine::clear() {
  if (shown_) erase_line();
  shown_ = false;
}

void configure_log(const Shell& shell) {
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(std::cerr, /*force_flush=*/true);
  auto logger = std::make_shared<spdlog::logger>(shell.tool, std::move(sink));
  logger->set_pattern("%n: %l: %v");
  logger->set_level(shell.quiet           ? spdlog::level::err
                    : shell.verbosity > 0 ? spdlog::level::debug
                                          : spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void inform(std::string_view text) { spdlog::info(escaped(text, Keep::continued)); }
void warn(std::string_view text) { spdlog::warn(escaped(text, Keep::continued)); }

}  // namespace pp::cli
