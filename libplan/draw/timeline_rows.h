// The operations of a simulation worker by worker, as boxes of a size that can be drawn on a time axis of round
// numbers: what the text and the SVG timeline draw.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/simulate/simulate.h"
#include "libprofile/core/units.h"

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

/// One operation, or a run of short ones.
struct TimelineBox {
  Seconds start{}, end{};
  std::array<Seconds, EnumNames<OpKind>::table.size()> busy{};  ///< by kind
  const OpEvent* op = nullptr;  ///< the operation, or the longest of the run's prevailing kind
  int count = 1;
};

/// Operations shorter than `shortest` are joined with those after them while the run stays shorter. So there
/// are at most about 2 * length / shortest boxes, whatever the number of operations. O(operations).
std::vector<TimelineBox> timeline_boxes(const TimelineRow& row, Seconds shortest);

/// Ticks at 0, step, 2 * step, ... up to the length.
struct TimeAxis {
  std::string_view unit;  ///< `ms`
  double unit_seconds = 1;
  Seconds step{1};
  int last = 0;      ///< index of the last tick
  int decimals = 0;  ///< of a label

  Seconds time(int tick) const { return tick * step; }
  /// The number alone, in the unit.
  std::string label(int tick) const;
};

/// At most `most` ticks (taken as 3 if less) and at least 2, at 1, 2 or 5 times a power of ten of the unit: ns
/// below 1 us, us below 1 ms, ms below 10 s, then s. A length of 0 has the one tick 0.
TimeAxis time_axis(Seconds length, int most);

}  // namespace pp::plan
