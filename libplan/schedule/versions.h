// Weight versions of asynchronous programs (schedules.md 5.3 to 5.5): which version each forward runs on under
// a policy, and whether that version exists and may still be kept.
#pragma once

#include <vector>

#include "libplan/schedule/program_set.h"
#include "libplan/schedule/schedule.h"

namespace pp::plan {

/// Whether updates come every few micro-batches (ScheduleRequest::micro_batches), and not after each.
bool aggregates(WeightPolicy policy);

/// Weight versions that a stage keeps (planning.md 2.6, V_s), the newest among them, when its replicas have
/// `window` micro-batches in flight in a pipeline of `stages`: what live_versions() counts for the windows
/// `win`.
int versions_kept(WeightPolicy policy, int window, int stages);

/// Largest number of live versions of each stage, over its workers: the newest and those that micro-batches in
/// flight hold. Version n is made by the n-th U. `set` must be asynchronous and valid; its `micro_batches` are
/// the stream's length. O(operations).
///
/// stash: forward and backward on the newest at the forward. vertical_sync: version max(0, j-(S-1)) of
/// micro-batch j on every stage. two_buffered: version max(0, j/m - 1), m micro-batches per update. macrobatch:
/// as stash, at most two versions. latest: the newest, nothing is kept. Throws pp::Error (data) that names the
/// operation, the version it needs and those that exist: `worker 0, operation 5 (F0.4): needs version 1 of
/// stage 0, the newest is 0`.
std::vector<int> live_versions(const ProgramSet& set, WeightPolicy policy);

}  // namespace pp::plan
