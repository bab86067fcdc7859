// The operations of one worker as boxes of a size that can be drawn.
#pragma once

#include <array>
#include <vector>

#include "libplan/draw/timeline_rows.h"

namespace pp::plan {

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

}  // namespace pp::plan
