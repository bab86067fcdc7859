// The report as one page for a browser: plan, timelines above one another, operations, workers, curves,
// settings. It loads nothing from anywhere, and names from documents are escaped.
#pragma once

#include <string>

#include "librun/report/report.h"

namespace pp::run {

/// `report` as report_from_json() or run() gives it. A few MB at most, whatever the length of the run.
/// O(operations of the plan + steps).
std::string report_html(const RunReport& report);

}  // namespace pp::run
