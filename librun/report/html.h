// Reports as one page for a browser: the explorer of libplan, with what was measured beside what was promised,
// and the curves, operations, workers and settings of the runs. It loads nothing from anywhere, and names from
// documents are escaped.
#pragma once

#include <span>
#include <string>

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

}  // namespace pp::run
