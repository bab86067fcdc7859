// The report page's curves over a run, and its table of epochs. Internal to html.cpp.
#pragma once

#include <span>
#include <string>

#include "librun/report/report.h"

namespace pp::run {

/// Loss, accuracy, step time, memory; empty for a run without steps. `limits`: per worker, 0 where unknown.
std::string curves_html(const RunReport& report, std::span<const Bytes> limits);

/// The last ones where there are many.
std::string epochs_html(std::span<const EpochReport> epochs);

}  // namespace pp::run
