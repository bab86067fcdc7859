// Lines on stderr besides errors: progress, rewritten on a terminal, one line per phase elsewhere, none with
// -q; and `pp-plan: warning: ...`. spdlog stays behind this file.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "apps/cli/shell.h"

namespace pp::cli {

/// Of at most `width` columns: the bar becomes shorter, then goes, then parts of `detail` do, from behind.
std::string progress_text(std::string_view phase, double done, std::string_view detail, std::size_t width);

class ProgressLine {
 public:
  explicit ProgressLine(const Shell& shell);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `phase` names the work, `detail` what changes: parts with ", " between them, the last ones may be left
  /// out where the terminal is narrow. Redrawn at most ten times a second.
  void update(std::string_view phase, double done, std::string_view detail);
  /// Removes the line, so that other output can follow.
  void clear();

 private:
  enum class Style { none, phases, line };
  Style style_;
  std::string phase_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

/// From here on: -q leaves out everything, -v adds decisions.
void configure_log(const Shell& shell);

void inform(std::string_view text);
void warn(std::string_view text);

}  // namespace pp::cli
