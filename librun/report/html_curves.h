// The curves and the table of epochs of the report page. Internal to it.
#pragma once

#include <span>
#include <string>

#include "librun/report/html.h"

namespace pp::run {

/// Loss, accuracy, step time and memory over the steps: those that there are something to draw of. Several
/// reports share the axes, a colour each.
std::string curves_html(std::span<const NamedReport> reports);

/// The last epochs as a table; empty when there are none.
std::string epochs_html(std::span<const EpochReport> epochs);

}  // namespace pp::run
