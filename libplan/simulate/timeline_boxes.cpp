#include "libplan/simulate/timeline_boxes.h"

#include <algorithm>
#include <array>
#include <span>

namespace pp::plan {
namespace {

Seconds length(const OpEvent* op) { return op->end - op->start; }

TimelineBox joined(std::span<const OpEvent* const> run) {
  std::array<Seconds, EnumNames<OpKind>::table.size()> by_kind{};
  const auto total = [&](const OpEvent* op) -> Seconds& {
    return by_kind[static_cast<std::size_t>(op->op.kind)];
  };
  for (const OpEvent* op : run) total(op) += length(op);
  TimelineBox box{run.front()->start, run.back()->end, {}, run.front(), static_cast<int>(run.size())};
  for (const OpEvent* op : run) {
    box.busy += length(op);
    if (std::pair(total(op), length(op)) > std::pair(total(box.op), length(box.op))) box.op = op;
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
