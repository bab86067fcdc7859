// Simulated or measured events in the Trace Event Format, for Perfetto (ui.perfetto.dev) or chrome://tracing.
// Events name the producer of a message only; the operation that consumes it follows from the stage order.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/simulate/memory_walk.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/units.h"

namespace pp::plan {

/// JSON with one row per worker and one per link direction that was used, times in microseconds down to whole
/// nanoseconds, and a counter of bytes held per worker where `memory` has curves. Up to 20,000 messages get an
/// arrow to the operation that waits for them; more would hide the rest. O(events), messages with arrows
/// O(operations log operations). `facts` stand beside the events, where viewers show them as information about
/// the trace; `predicted` operations in rows of their own, at their times.
std::string chrome_trace(const SimulationResult& result, std::span<const MemoryCurve> memory = {},
                         const Context& facts = {}, std::span<const OpEvent> predicted = {});

/// Per message of `result` the operation on the receiving worker that needs it: the same micro-batch on the
/// nearest later stage for an activation, on the nearest earlier one for a gradient, the first that starts
/// after the message was sent (a measured run repeats its steps). Null where there is none. O((operations +
/// messages) log operations).
std::vector<const OpEvent*> message_consumers(const SimulationResult& result);

}  // namespace pp::plan
