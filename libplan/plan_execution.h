// Which plans are for planning and simulation only, so far.
#pragma once

#include <string>

#include "libplan/plan.h"

namespace pp::plan {

/// Empty, or why pp-run does not execute a valid plan and what it does execute: `pp-run executes weight
/// policies flush and stash, this plan has two_buffered: it can be simulated; plan with --schedule pipedream to
/// run asynchronously`.
std::string execution_refusal(const Plan& plan);

}  // namespace pp::plan
