// Simulated or measured events in the Trace Event Format, for Perfetto (ui.perfetto.dev) or chrome://tracing.
#pragma once

#include <span>
#include <string>

#include "libplan/simulate/memory_curve.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/context.h"

namespace pp::plan {

/// JSON with one row per worker and one per link direction that was used, times in microseconds down to whole
/// nanoseconds, and a counter of bytes held per worker where `memory` has curves. Up to 20,000 messages get an
/// arrow to the operation that waits for them; more would hide the rest. O(events), messages with arrows
/// O(operations log operations). `facts` stand beside the
/// events, where viewers show them as information about the trace.
std::string chrome_trace(const SimulationResult& result, std::span<const MemoryCurve> memory = {},
                         const Context& facts = {});

}  // namespace pp::plan
