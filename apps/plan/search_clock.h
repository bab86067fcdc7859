// The time that a search may take, and what it says meanwhile.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "apps/cli/progress.h"
#include "libplan/search/planner.h"

namespace pp::plan_tool {

/// Starts when it is made; must outlive the searches it watches.
class SearchClock {
 public:
  /// `what` names the work: `planning`.
  SearchClock(std::string what, Seconds limit, const cli::Shell& shell);

  /// Ends the search after the limit; shows progress from the third second on.
  std::function<bool(const plan::SearchProgress&)> observer();
  Seconds elapsed() const { return std::chrono::steady_clock::now() - begin_; }

 private:
  bool look(const plan::SearchProgress& progress);

  std::string phase_;
  Seconds limit_;
  cli::ProgressLine line_;
  Seconds shown_{};  ///< when the line was written last
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace pp::plan_tool
