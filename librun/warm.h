// What a plan's workers exchange, tried before a training: every communicator joined, every kind of message and
// sum sent through the run's own ways, timed beside what the plan promises. Plain values: apps include it.
#pragma once

#include <string>
#include <vector>

#include "libplan/plan/plan.h"
#include "librun/options/run_options.h"
#include "librun/transport/peers.h"

namespace pp::run {

/// A message from one worker to another, or a sum of several.
struct WarmExchange {
  std::vector<WorkerId> workers;  ///< of a message the sender, then the receiver
  std::string what;               ///< `activation of conv2`
  Bytes bytes;                    ///< of a sum those of one member's vector
  Seconds promised{};             ///< by the plan's links; 0: nothing, as within one device
  Seconds measured{};             ///< median, by rank 0's clock
};

/// A device of the plan that workers use.
struct WarmDevice {
  std::string name;
  std::vector<WorkerId> workers = {};
  Bytes peak{0};    ///< that the plan promises of these workers
  Bytes taken{0};   ///< by communicators; of processes on CPUs an equal share for each worker
  Bytes memory{0};  ///< 0: not known, no limit
  Bytes needed() const { return peak + taken; }
  bool fits() const { return memory == Bytes(0) || needed() <= memory; }
};

struct WarmReport {
  int ranks = 1;
  std::vector<WarmExchange> messages = {}, sums = {};
  std::vector<WarmDevice> devices = {};    ///< in the order of their first workers
  std::vector<std::string> left_out = {};  ///< what the plan's program does besides and was not tried
  std::vector<std::string> warnings = {};
};

/// Checks the plan as check() does and then tries all of it. Neither data nor weights are read: options without
/// data stand for synthetic ones. Throws as run() does; a message that arrives with other content than it was
/// sent with is pp::Error (run) that names it.
WarmReport warm(const plan::Plan& plan, const RunOptions& options);

/// The same by several processes, as run_together(). Rank 0 gets the report. `joining`: what this process has
/// taken to meet `peers`, which counts as its communicators'.
WarmReport warm_together(Peers& peers, const plan::Plan& plan, const RunOptions& options, Bytes joining);

}  // namespace pp::run
