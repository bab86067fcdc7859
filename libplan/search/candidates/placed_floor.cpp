#include "libplan/search/candidates/placed_floor.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "libplan/cost/stage_cost.h"
#include "libplan/plan/programs.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Whether stages hold all micro-batches that the programs have in flight: not where weights are swapped, whose
/// tasks hold one at a time.
bool knows_windows(const PlanCase& one, const Schedule& schedule) {
  return !schedule.workers.front().program.empty() && one.schedule.rules != RuleSet::swapped;
}

/// Micro-batches in flight of the stages, from the first on; no stage has more than those in front of it, as
/// the searches require. Stages without programs yet, and those that run again, have one.
std::vector<int> least_windows(const PlanCase& one, const Schedule& schedule) {
  std::vector<int> result(schedule.stage_workers.size(), 1);
  if (!knows_windows(one, schedule) || one.in_flight.recompute != RecomputeMode::never) return result;
  int least = one.batch.micro_batches;  // of all pipelines; each has no more
  for (std::size_t s = 0; s < result.size(); ++s) {
    int most = 0;
    for (const WorkerId worker : schedule.stage_workers[s])
      most = std::max(most, whole_window_of(schedule.workers[index(worker)], StageId{static_cast<int>(s)}));
    result[s] = least = std::min(least, most);
  }
  return result;
}

/// Of the stage behind the first that has fewest, over its copies.
int least_window(const Schedule& schedule) {
  int least = std::numeric_limits<int>::max();
  for (std::size_t s = 1; s < schedule.stage_workers.size(); ++s) {
    int window = 0;
    for (const WorkerId worker : schedule.stage_workers[s])
      window += whole_window_of(schedule.workers[index(worker)], StageId{static_cast<int>(s)});
    least = std::min(least, window);
  }
  return least;
}

/// Stages that have no worker in common with the one in front.
int crossings(const PlanCase& one, const Schedule& schedule) {
  if (one.schedule.rules == RuleSet::swapped) return 0;
  int count = 0;
  for (std::size_t s = 1; s < schedule.stage_workers.size(); ++s)
    count += std::ranges::find_first_of(schedule.stage_workers[s], schedule.stage_workers[s - 1]) ==
             schedule.stage_workers[s].end();
  return count;
}

/// Seconds that the messages of a micro-batch take over so many boundaries, where gradients return. On the way
/// is what the layer in front sends: what skips a stage may be there before.
double least_messages(const Chain& chain, int crossings, const Link& link) {
  std::vector<double> times;
  for (int k = 1; k < chain.size(); ++k) {
    const Exchange& least = chain.least_out[at(k)];
    const bool returns = chain.upto[at(k)].returned > 0;
    times.push_back(returns ? transfer_time(least.activation, least.activations, link) +
                                  transfer_time(least.gradient, least.gradients, link)
                            : 0);
  }
  std::ranges::sort(times);
  times.resize(std::min(times.size(), at(crossings)));
  return std::accumulate(times.begin(), times.end(), 0.0);
}

}  // namespace

PlacedFloor::PlacedFloor(const PlanCase& one, const Schedule& schedule, int pipelines, std::int64_t bytes,
                         const Link& best)
    : chain_(one.bound_chain),
      back_(one.schedule.split_backward ? &PassTimes::input_gradient : &PassTimes::backward),
      turns_(one.in_flight.batch.total(&MicroBatches::time) / one.in_flight.batch.least_time() /
             static_cast<double>(schedule.stage_workers.front().size()) / pipelines),
      whole_(chain_.upto.back().returned + chain_.upto.back().times.*back_ +
             least_messages(chain_, crossings(one, schedule), best)) {
  MemoryLimit limit = one.devices.limit;
  limit.bytes = bytes;
  if (!is_limited(limit)) return;
  room_ = static_cast<double>(bytes) * static_cast<double>(schedule.workers.size());
  const bool again = one.in_flight.recompute != RecomputeMode::never && schedule.stage_workers.size() > 1;
  if (again && knows_windows(one, schedule))
    held_again_ = least_window(schedule) * std::min(1.0, one.in_flight.batch.bytes);
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
  const LayerSums &front = chain_.upto[at(begin)], &back = chain_.upto[at(end)];
  const LoadTerms terms{.forward = back.times.forward - front.times.forward,
                        .backward = back.times.backward - front.times.backward,
                        .awaited = back.times.*back_ - front.times.*back_,
                        .reach = back.returned + back.times.*back_,
                        .whole = whole_,
                        .fixed = chain_.fixed,
                        .turns = turns_};
  return stage_load(LoadKind::step_bound, terms, 0, 0);
}

bool PlacedFloor::fits(int begin, int end, DeviceSpan span) const {
  return memories_.empty() || memories_[at(span.first)].fits_at_least(begin, end, span.count, 0);
}

bool PlacedFloor::has_room_again(const SearchSpace& space) const {
  if (held_again_ == 0) return true;
  std::vector<double> kept;
  for (int k = 1; k < space.layers; ++k) {
    if (space.may_cut(k))
      kept.push_back(
          std::min(chain_.least_in[at(k)].activation, static_cast<double>(chain_.between(k, k + 1).saved)));
  }
  std::ranges::sort(kept);
  const auto cuts = std::min(kept.size(), at(space.exact_stages - 1));
  return held_again_ * std::accumulate(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(cuts), 0.0) <=
         room_;
}

}  // namespace pp::plan
