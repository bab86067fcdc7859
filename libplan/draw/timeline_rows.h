// The operations of a simulation worker by worker: what the text and the SVG timeline draw.
#pragma once

#include <string>
#include <vector>

#include "libplan/simulate/simulate.h"

namespace pp::plan {

struct TimelineRow {
  std::vector<const OpEvent*> ops;  ///< by start; they point into the result
  /// Those that it runs micro-batches of, ascending: an all-reduce of tied weights names another worker's. Of a
  /// worker that runs none, all that occur.
  std::vector<StageId> stages;
  Seconds busy{};

  /// Which of the worker's stages this is, from 0; of one that it does not have, the nearest.
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

/// `12.5 %`
std::string percent_text(double share);

}  // namespace pp::plan
