#include "apps/cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "apps/cli/log.h"
#include "apps/cli/table.h"

namespace pp::cli {

namespace {

/// Past the escaping of std::cerr, which would show it.
void erase_line() { std::fputs("\r\033[K", stderr); }

}  // namespace

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
  std::string filled = bar(done, 24);
  std::cerr << phase << " [" << filled << "] " << percent(done) << "  " << detail << std::flush;
}

void ProgressLine::clear() {
  if (shown_) erase_line();
  shown_ = false;
}

}  // namespace pp::cli
