// Reports as one page for a browser: the explorer of libplan, with what was measured beside what was
// promised, and the curves, operations, workers and settings of the runs, which page/report.js makes of the
// documents. It loads nothing from anywhere.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "librun/report/report.h"

namespace pp::run {

/// A report and the file that it comes from; it must outlive the call.
struct NamedReport {
  std::string name;
  const RunReport* report = nullptr;
};

/// Reports as report_from_json() or run() gives them, at least one; several share the axes of time, memory and
/// steps. A few MB at most, whatever the length of the runs. O(operations of the plans + steps).
std::string report_html(std::span<const NamedReport> reports);

struct PageTimeline {
  std::string name;  ///< `predicted`, `measured, steps 3 to 4`
  Drawn drawn;
  Seconds step{};  ///< in steady state
  double bubble = 0;
};

/// The predicted one first, where the plan carries costs; none where no operation was written down. A step
/// whose mini-batch was a partial one is named.
std::vector<PageTimeline> page_timelines(const RunReport& report);

/// The files of report/page.
extern const std::string_view kReportScript, kReportStyle;

/// Four significant digits, no exponent where people would write none.
std::string number_text(double value);

}  // namespace pp::run
