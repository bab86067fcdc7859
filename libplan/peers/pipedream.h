// PipeDream's optimizer (Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training",
// SOSP'19, sec. 3.1), flat or over any number of levels, in two versions of its costs: as released and as
// printed; pipedream_level.h has the recurrence.
//
// Kept as they are: all-reduce is added to compute (code) with 4(m-1)/m of the weights; an outer boundary is
// charged at the bandwidth of the inner level when an inner pipeline ends there; the memory test counts no copy
// for the last stage, so any limit is met by pure data parallelism; activations are free unless charged. Ours:
// branching graphs are searched on six linear orders with live-set cuts instead of augmented antichains, whose
// two-level form joins intervals that are not nested.
#pragma once

#include "libplan/peers/input.h"

namespace pp::plan {

/// Exact over the peer's plans on each layer order; both strategies search the same. Per order about O(layers^2
/// * devices^2 * log layers) for each level (interval_table.h), layers times less for the outermost.
std::variant<PeerPlan, Infeasible> plan_pipedream(const PeerInput& input, const PeerOptions& options);

}  // namespace pp::plan
