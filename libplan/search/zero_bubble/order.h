// The orders that the zero-bubble search is about: which of F, I and W a worker runs next. Micro-batches need
// not be named, because on every stage each kind runs 0, 1, 2, ... (so gradients are added in that order).
#pragma once

#include <vector>

#include "libplan/schedule/validate.h"

namespace pp::plan {

/// One worker: only F, I and W, each once per micro-batch; the k-th of a kind is micro-batch k.
using WorkerOrder = std::vector<OpKind>;
/// Per worker; worker s runs stage s.
using Order = std::vector<WorkerOrder>;

/// How many forwards a worker may have run while its first w weight gradients are done, w = 0..M-1: what is
/// held from F to W is bounded by it. At least w + 1.
using Room = std::vector<int>;

/// Every I after its F, every W after its I, and never more forwards than the room allows.
bool is_valid(const WorkerOrder& order, const Room& room);

/// The one rule behind 1F1B with split backwards, ZB-H1 and ZB-H2: `window` forwards, then for each micro-batch
/// I, a W once `weight_delay` micro-batches are through, and the next F. Qi et al., "Zero Bubble Pipeline
/// Parallelism" (ICLR 2024), section 2.
struct HandRule {
  int window = 1;
  int weight_delay = 0;
};

/// Where the room is too small for the rule, W runs earlier. The result is always valid for the room, which has
/// one entry per micro-batch.
WorkerOrder apply(const HandRule& rule, const Room& room);

/// The programs of `order`, each ending with its U. `placement` gives everything but the lists.
ProgramSet to_programs(const Order& order, ProgramSet placement);

}  // namespace pp::plan
