// Whether programs also finish when messages do not wait in unlimited room: derived sends and receives with
// bounded queues, or with blocking (rendez-vous) sends. And how much of a set of streams shows all that they
// ever do: what check_plan() reads, and what the search asks before it chooses replicas.
#pragma once

#include <optional>
#include <vector>

#include "libplan/schedule/program_set.h"
#include "libplan/schedule/schedule.h"

namespace pp::plan {

/// A send that returns only when the receiver stands at the matching receive.
inline constexpr int kRendezvous = 0;

/// Each operation receives what it needs from other workers, in the order of its producers, runs, then sends
/// its result to each consumer on another worker, in the order of consumers. A queue of `capacity` messages
/// leads from every worker to every other, messages are matched by their operation; a send waits while the
/// queue is full. O(operations). Throws pp::Error (data) for what validate() refuses before progress, and
/// `plan: deadlock with queues of 1 after 12 of 64 operations` with one line per worker: what it receives or
/// sends, and whom it waits for.
void check_queues(const ProgramSet& set, int capacity);

struct StreamLength {
  int micro_batches = 0;
  bool stretch = false;  ///< it may end within a round
};

/// Micro-batches after which streams have shown all that they ever do: past the longest prologue and then for a
/// few rounds in which every worker begins its body anew. Where replicas take turns, every stage does with
/// micro-batch m + 1 what it does with m, so a stretch of a round that is too long is enough. `streams`: of the
/// workers; `stage_workers`: the positions there of each stage's replicas. Nothing: the turns do not meet
/// within kOperationLimit micro-batches, or that length has more operations.
std::optional<StreamLength> stream_length(const std::vector<const Stream*>& streams,
                                          const std::vector<std::vector<int>>& stage_workers, int per_update,
                                          WeightPolicy policy);

}  // namespace pp::plan
