#include "libplan/simulate/memory_curve.h"

#include <algorithm>

#include "libplan/simulate/index_simulation.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// The events of `result` by operation id: events of one worker stand in the order of its list.
std::vector<const OpEvent*> events_by_id(const ProgramIndex& index, const SimulationResult& result) {
  std::vector<int> next(index.worker_begin.begin(), index.worker_begin.end() - 1);
  std::vector<const OpEvent*> events(index.ops.size());
  bool same = result.ops.size() == index.ops.size();
  for (std::size_t i = 0; same && i < result.ops.size(); ++i) {
    const OpEvent& event = result.ops[i];
    same = pp::index(event.worker) < next.size() &&
           next[pp::index(event.worker)] < static_cast<int>(events.size());
    if (!same) break;
    const std::size_t id = at(next[pp::index(event.worker)]++);
    same = index.ops[id] == event.op;
    events[id] = &event;
  }
  if (!same) throw Error(ErrorKind::internal, "memory curves: the result does not belong to the input");
  return events;
}

}  // namespace

std::vector<MemoryCurve> memory_curves(const SimulationInput& input, const SimulationResult& result) {
  const ProgramIndex index = index_simulation(input);
  const std::vector<const OpEvent*> events = events_by_id(index, result);
  std::vector<MemoryCurve> curves(at(index.workers()));
  for (int worker = 0; worker < index.workers(); ++worker) {
    MemoryCurve& curve = curves[at(worker)];
    walk_worker(index, input, worker, [&](int id, WalkPoint point, const MemoryParts& held) {
      if (!curve.empty() && curve.back().held == held) return;
      const Seconds time = id == kNone                 ? Seconds(0)
                           : point == WalkPoint::start ? events[at(id)]->start
                                                       : events[at(id)]->end;
      curve.push_back({time, held});
    });
  }
  return curves;
}

Bytes highest(std::span<const MemoryCurve> curves) {
  Bytes bytes;
  for (const MemoryCurve& curve : curves) {
    for (const MemoryStep& step : curve) bytes = std::max(bytes, total(step.held));
  }
  return bytes;
}

std::vector<MemoryParts> sample(const MemoryCurve& curve, Seconds length, int columns) {
  std::vector<MemoryParts> samples(at(columns));
  const auto column = [&](Seconds time) {
    const double place = length.count() > 0 ? time / length * columns : 0;
    return std::clamp(static_cast<int>(place), 0, columns - 1);
  };
  std::vector<Bytes> totals(at(columns), Bytes(-1));
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const Bytes held = total(curve[i].held);
    const bool last = i + 1 == curve.size();
    const int begin = column(curve[i].time);
    const int end = last ? columns - 1 : column(curve[i + 1].time);
    // A step that ends where a column begins is not in that column, unless it has no length.
    const bool ends_before = !last && end > begin && length / columns * end >= curve[i + 1].time;
    for (int c = begin; c <= end - (ends_before ? 1 : 0); ++c) {
      if (held <= totals[at(c)]) continue;
      totals[at(c)] = held;
      samples[at(c)] = curve[i].held;
    }
  }
  return samples;
}

}  // namespace pp::plan
