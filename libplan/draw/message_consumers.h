// Which operation a message was for. Events name producers only; the consumer follows from the stage order.
#pragma once

#include <vector>

#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// Per message of `result` the operation on the receiving worker that needs it: the same micro-batch on the
/// nearest later stage for an activation, on the nearest earlier one for a gradient, the first that starts
/// after the message was sent (a measured run repeats its steps). Null where there is none. O((operations +
/// messages) log operations).
std::vector<const OpEvent*> message_consumers(const SimulationResult& result);

}  // namespace pp::plan
