// A timeline, simulated or measured, as the data that the page draws: compact, as a page holds thousands of
// workers.
#pragma once

#include <cstddef>
#include <span>

#include "libplan/simulate/memory_walk.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan {

/// What a timeline may take of the page.
struct TimelineLimits {
  std::size_t operations = 120'000;   ///< of all rows; more are joined where they are short
  std::size_t memory_steps = 30'000;  ///< of all rows; more are sampled, no peak is lost
};

/// An object with
///   length      seconds from the first operation to the last
///   ticks       parts that the length is divided into; the unit of what follows
///   operations  how many there are
///   joined      seconds below which operations were joined; 0: all are there
///   types       [kind, stage, seconds] each; `kind` is an index of EnumNames<OpKind>
///   parts       what a worker holds at a time, as kMemoryParts lists it, in bytes
///   rows        each of the workers that do the same at the same times:
///     workers   ascending
///     shifts    what each adds to the micro-batches of the first; absent: nothing
///     busy      seconds
///     ops       [type, micro-batch, gap, ...]: the gap is in ticks, from the end of the one before. -1 in
///     place of
///               a micro-batch: none. Joined operations stand one behind the other, a kind each, with -2
///     memory    [gap, part, ...]: in ticks from the step before; absent: not known
/// Rows are by their first worker. The same input gives the same data. O(operations * rows) at worst,
/// O(operations) where workers differ early.
Json timeline_data(const SimulationResult& result, std::span<const MemoryCurve> memory,
                   const TimelineLimits& limits = {});

}  // namespace pp::plan
