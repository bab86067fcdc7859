// The timelines that the page of a report shows: what was promised, and what was measured.
#pragma once

#include <string>
#include <vector>

#include "librun/report/report.h"

namespace pp::run {

struct PageTimeline {
  std::string name;  ///< `predicted`, `measured, steps 3 to 4`
  Drawn drawn;
  Seconds step{};  ///< in steady state
  double bubble = 0;
};

/// The predicted one first, where the plan carries costs; none where no operation was written down. A step
/// whose mini-batch was a partial one is named.
std::vector<PageTimeline> page_timelines(const RunReport& report);

}  // namespace pp::run
