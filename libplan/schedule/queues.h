// Whether programs also finish when messages do not wait in unlimited room: derived sends and receives with
// bounded queues, or with blocking (rendez-vous) sends.
#pragma once

#include "libplan/schedule/program_set.h"

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

}  // namespace pp::plan
