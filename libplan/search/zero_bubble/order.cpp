#include "libplan/search/zero_bubble/order.h"

#include <algorithm>
#include <array>

#include "libprofile/core/index.h"

namespace pp::plan {

bool is_valid(const WorkerOrder& order, const Room& room) {
  std::size_t forwards = 0;
  std::size_t inputs = 0;
  std::size_t weights = 0;
  for (const OpKind kind : order) {
    if (kind == OpKind::forward) {
      if (weights == room.size() || static_cast<int>(++forwards) > room[weights]) return false;
    } else if (kind == OpKind::input_gradient) {
      if (++inputs > forwards) return false;
    } else if (++weights > inputs) {
      return false;
    }
  }
  return true;
}

WorkerOrder apply(const HandRule& rule, const Room& room) {
  const int count = static_cast<int>(room.size());
  WorkerOrder order;
  int forwards = 0;
  int weights = 0;
  const auto has_room = [&] { return forwards < count && forwards < room[at(weights)]; };
  const auto run_weight = [&] {
    order.push_back(OpKind::weight_gradient);
    ++weights;
  };
  const auto run_forward = [&] {
    order.push_back(OpKind::forward);
    ++forwards;
  };
  while (forwards < rule.window && has_room()) run_forward();
  for (int inputs = 1; inputs <= count; ++inputs) {
    order.push_back(OpKind::input_gradient);
    if (inputs > rule.weight_delay && weights < inputs) run_weight();
    if (forwards == count) continue;
    while (!has_room() && weights < inputs) run_weight();
    if (has_room()) run_forward();
  }
  while (weights < count) run_weight();
  return order;
}

ProgramSet to_programs(const Order& order, ProgramSet placement) {
  placement.workers.clear();
  for (std::size_t s = 0; s < order.size(); ++s) {
    const StageId stage{static_cast<int>(s)};
    Program& program = placement.workers.emplace_back();
    int forwards = 0;
    int inputs = 0;
    int weights = 0;
    for (const OpKind kind : order[s]) {
      int& next = kind == OpKind::forward ? forwards : kind == OpKind::input_gradient ? inputs : weights;
      program.push_back({kind, stage, next++});
    }
    program.push_back({OpKind::update, stage, 0});
  }
  return placement;
}

}  // namespace pp::plan
