#include "libplan/draw/timeline_boxes.h"

#include <span>
#include <utility>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

Seconds length(const OpEvent* op) { return op->end - op->start; }

TimelineBox joined(std::span<const OpEvent* const> run) {
  TimelineBox box{run.front()->start, run.back()->end, {}, run.front(), static_cast<int>(run.size())};
  const auto busy = [&](const OpEvent* op) -> Seconds& { return box.busy[at(op->op.kind)]; };
  for (const OpEvent* op : run) busy(op) += length(op);
  for (const OpEvent* op : run) {
    if (std::pair(busy(op), length(op)) > std::pair(busy(box.op), length(box.op))) box.op = op;
  }
  return box;
}

}  // namespace

std::vector<TimelineBox> timeline_boxes(const TimelineRow& row, Seconds shortest) {
  std::vector<TimelineBox> boxes;
  for (std::size_t begin = 0; begin < row.ops.size();) {
    const Seconds start = row.ops[begin]->start;
    std::size_t end = begin + 1;
    if (length(row.ops[begin]) < shortest) {
      while (end < row.ops.size() && row.ops[end]->end - start < shortest) ++end;
    }
    boxes.push_back(joined(std::span(row.ops).subspan(begin, end - begin)));
    begin = end;
  }
  return boxes;
}

}  // namespace pp::plan
