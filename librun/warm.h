// What a plan's workers exchange, tried before a training: every communicator joined, every kind of message and
// sum sent through the run's own ways, timed beside what the plan promises. Plain values: apps include it.
#pragma once

#include "libplan/plan/plan.h"
#include "librun/options/run_options.h"
#include "librun/report/warm_report.h"
#include "librun/transport/peers.h"

namespace pp::run {

/// Checks the plan as check() does and then tries all of it. Neither data nor weights are read: options without
/// data stand for synthetic ones. Throws as run() does; a message that arrives with other content than it was
/// sent with is pp::Error (run) that names it.
WarmReport warm(const plan::Plan& plan, const RunOptions& options);

/// The same by several processes, as run_together(). Rank 0 gets the report. `joining`: what this process has
/// taken to meet `peers`, which counts as its communicators'.
WarmReport warm_together(Peers& peers, const plan::Plan& plan, const RunOptions& options, Bytes joining);

}  // namespace pp::run
