// The core of the simulator: start and end of every operation and message. What people want to know about them
// (bubble, memory, periods, traces) is computed elsewhere from the timeline.
#pragma once

#include <vector>

#include "libplan/schedule/program_index.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

struct Timeline {
  std::vector<double> start{};  ///< seconds, by operation id
  std::vector<double> end{};
  std::vector<MessageEvent> messages{};  ///< in the order of their requests
  double makespan = 0;
};

/// Periods need no messages, only what they delay.
enum class Messages { drop, keep };

/// Time-ordered, ties by (kind, stage, micro-batch, worker). O(operations log workers + messages). Throws
/// pp::Error (data) with the deadlock report.
Timeline run_event_loop(const ProgramIndex& index, const SimulationInput& input, Messages messages);

/// Several equal steps one after the other.
struct ChainTimes {
  std::vector<double> ends;  ///< when all operations of the steps up to this one have ended
  /// No message waited for one of a later step: `ends` are those of as many steps by themselves.
  bool apart = true;
  Timeline timeline;  ///< of all of them; messages of the first one
};
/// Every program of the index is `steps` copies of one list. Throws as run_event_loop().
ChainTimes run_chain(const ProgramIndex& index, const SimulationInput& input, int steps, Messages messages);

}  // namespace pp::plan
