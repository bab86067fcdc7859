// The operations of a simulation worker by worker: what the text and the SVG timeline draw.
#pragma once

#include <string>
#include <vector>

#include "libplan/simulate/simulate.h"

namespace pp::plan {

struct TimelineRow {
  std::vector<const OpEvent*> ops;  ///< by start; they point into the result
  std::vector<StageId> stages;      ///< that occur, ascending
  Seconds busy{};

  /// Which of the worker's stages this is, from 0.
  int chunk(StageId stage) const;
};

/// One per worker. Valid while `result` is. O(operations log stages).
std::vector<TimelineRow> timeline_rows(const SimulationResult& result);

/// Of the worker with the most.
int most_chunks(const std::vector<TimelineRow>& rows);

/// Only the kinds that occur, in the order of OpKind.
std::vector<OpKind> kinds_of(const SimulationResult& result);

/// The share of `length` in which the worker does nothing.
double idle_share(const TimelineRow& row, Seconds length);

}  // namespace pp::plan
