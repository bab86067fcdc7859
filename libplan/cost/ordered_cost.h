// What the search on an ordered list of devices asks of a cost model. A stage runs on consecutive devices of
// the list; position 0 serves the last layers, so the devices behind a stage are those in front of its span.
#pragma once

#include <vector>

#include "libplan/cost/stage_cost.h"

namespace pp::plan {

/// Positions first..first+count-1 of the list.
struct DeviceSpan {
  int first = 0;
  int count = 1;
  int end() const { return first + count; }
};

/// Times in seconds. Required of `stage`: it does not fall when the stage grows on either side, except for
/// `scan_replicas` of the search. Required of `fits`: a stage that does not fit still does not when it grows.
class OrderedCost {
 public:
  virtual ~OrderedCost() = default;
  /// Load of the stage [begin, end) on the devices of `span`.
  virtual double stage(int begin, int end, DeviceSpan span) const = 0;
  /// Load of boundary `boundary` on a stage at that side of it. Not called for 0 and N.
  virtual double cut(int boundary, DeviceSpan span, CutSide side) const = 0;
  virtual bool fits(int begin, int end, DeviceSpan span) const = 0;
  /// Whether stages on `span` are searched at all.
  virtual bool considers(DeviceSpan) const { return true; }

  /// What is added up over a partition: the time of layers [0, boundary) at the speed of `span`, and that of
  /// the boundary behind a stage on `span`. Zero where only the largest load counts. Fixed costs of a stage go
  /// with the boundary behind it.
  virtual double passage(int boundary, DeviceSpan span) const = 0;
  virtual double fill(int boundary, DeviceSpan span) const = 0;
};

/// Memory of each device, with the in-flight window that follows from all stages behind (see ExactMemory).
class OrderedMemory {
 public:
  virtual ~OrderedMemory() = default;
  /// As ExactMemory's; the devices behind are those in front of the span.
  virtual int demand(DeviceSpan span, const Behind& behind) const = 0;
  /// `demand` is the stage's own.
  virtual bool fits(const StageRange& stage, DeviceSpan span, int demand) const = 0;
};

/// The devices of each stage: the last stage begins at position 0.
std::vector<DeviceSpan> spans_of(const Partition& partition);

}  // namespace pp::plan
