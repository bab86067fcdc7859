#include "libplan/search/candidates/placed_floor.h"

#include <algorithm>

#include "libplan/cost/stage_load.h"
#include "libplan/plan_windows.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Micro-batches in flight of the stages, from the first on; no stage has more than those in front of it, as
/// the searches require. Stages without programs yet, and those that run again, have one.
std::vector<int> least_windows(const PlanCase& one, const Schedule& schedule) {
  std::vector<int> result(schedule.stage_workers.size(), 1);
  const bool known = !schedule.workers.front().program.empty();
  if (one.schedule.rules == RuleSet::swapped) return result;  // tasks hold a micro-batch at a time
  if (!known || one.in_flight.recompute != RecomputeMode::never) return result;
  int least = one.batch.micro_batches;  // of all pipelines; each has no more
  for (std::size_t s = 0; s < result.size(); ++s) {
    int most = 0;
    for (const WorkerId worker : schedule.stage_workers[s])
      most = std::max(most, whole_window_of(schedule.workers[index(worker)], StageId{static_cast<int>(s)}));
    result[s] = least = std::min(least, most);
  }
  return result;
}

}  // namespace

PlacedFloor::PlacedFloor(const PlanCase& one, const Schedule& schedule, int pipelines, std::int64_t bytes)
    : chain_(one.bound_chain),
      back_(one.schedule.split_backward ? &PassTimes::input_gradient : &PassTimes::backward),
      turns_(one.in_flight.batch.total(&MicroBatches::time) / one.in_flight.batch.least_time() /
             static_cast<double>(schedule.stage_workers.front().size()) / pipelines) {
  MemoryLimit limit = one.devices.limit;
  limit.bytes = bytes;
  if (!is_limited(limit)) return;
  std::vector<int> windows = least_windows(one, schedule);
  std::ranges::reverse(windows);
  for (const int window : windows) {
    InFlight in_flight{.rule = WindowRule::explicit_list,
                       .windows = {window},
                       .micro_batches = one.batch.micro_batches,
                       .batch = one.in_flight.batch,
                       .recompute = one.in_flight.recompute,
                       .sharded = one.in_flight.sharded,
                       .pipelines = static_cast<int>(schedule.stage_workers.front().size()) * pipelines};
    const int smaller = in_flight.batch.count - in_flight.batch.full;
    in_flight.batch.full = window - std::min(window, smaller);  // whichever they are
    memories_.emplace_back(one.chain, std::move(in_flight), limit);
  }
}

double PlacedFloor::stage(int begin, int end, DeviceSpan) const {
  const LayerSums here = chain_.between(begin, end), before = chain_.between(0, end);
  const LayerSums all = chain_.between(0, chain_.size());
  const LoadTerms terms{.forward = here.times.forward,
                        .backward = here.times.backward,
                        .awaited = here.times.*back_,
                        .reach = before.returned + before.times.*back_,
                        .whole = all.returned + all.times.*back_,
                        .fixed = chain_.fixed,
                        .turns = turns_};
  return stage_load(LoadKind::step_bound, terms, 0, 0);
}

bool PlacedFloor::fits(int begin, int end, DeviceSpan span) const {
  return memories_.empty() || memories_[at(span.first)].fits_at_least(begin, end, span.count, 0);
}

}  // namespace pp::plan
