// After the loss of a host: what the others have of checkpoints in memory becomes a whole one.
#pragma once

#include "librun/options/run_options.h"
#include "librun/transport/mailbox.h"
#include "librun/transport/placement.h"

namespace pp::run {

/// Brings the newest checkpoint of which every part is in the memory of some host to all hosts, whole, and
/// removes others there; where the training does not go on from memory (MemoryCheckpoints) or is on one host,
/// does nothing. All ranks call it, before they look for a checkpoint. Every host needs room for all parts.
/// Throws pp::Error (run) on all ranks alike, LostRank as await_at_start() does.
void gather_memory(Mailbox& mailbox, const RunOptions& options, const Placement& placement);

}  // namespace pp::run
