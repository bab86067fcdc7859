// Executing a plan: workers, transports, data, report behind one call with plain values. Apps include this
// header; it is free of Torch.
#pragma once

#include <functional>

#include "libplan/plan/plan.h"
#include "libprofile/core/error.h"
#include "librun/options/run_options.h"
#include "librun/report/progress.h"
#include "librun/report/report.h"
#include "librun/transport/mailbox.h"
#include "librun/transport/peers.h"

namespace pp::run {

/// Everything that can be found before work starts: the plan (check_plan), its devices, the data against the
/// model, the last mini-batch, J of asynchronous streams. Returns what the run would warn of. Throws pp::Error
/// (data, usage, device).
std::vector<std::string> check(const plan::Plan& plan, const RunOptions& options);

/// What each worker of a training runs, in order: a line for each operation of its program with the
/// instructions that plan and options make of it (wiring/instructions.h). Throws as check() does.
std::vector<std::string> programs(const plan::Plan& plan, const RunOptions& options);

/// Trains. `interrupted` is polled all the time: true ends the run when the steps that a worker has begun are
/// finished, and leaves an evaluation (RunReport::exit_reason). A failure of one worker stops all and is
/// rethrown as pp::Error (run) that names worker, stage, operation and micro-batch; no file is left
/// half-written. A worker that then does not end within the stall timeout, at most five seconds, is left
/// behind, which the message says.
RunReport run(
    const plan::Plan& plan, const RunOptions& options, Observer& observer,
    const std::function<bool()>& interrupted = [] { return false; });

/// The same by several processes, which all call it, each for its workers (transport/placement.h). First they
/// find out whether they are of one mind: plan, options, data, version. Rank 0 writes files, tells its observer
/// and returns the report; of the others' reports only the exit reason means something. A failure anywhere ends
/// all of them, each with an exception: SaidElsewhere but for rank 0, which names the rank where it happened.
RunReport run_together(Peers& peers, const plan::Plan& plan, const RunOptions& options, Observer& observer,
                       const std::function<bool()>& interrupted);
/// In its place, for a rank that does not come so far: tells the others, who then throw, too.
[[noreturn]] void refuse_together(Peers& peers, const Error& why);

/// How many failed runs have left a worker behind. Its thread still uses the run's memory, which is kept; the
/// process should end by _exit, which waits for nobody.
int runs_left_behind();

}  // namespace pp::run
