#include "libplan/search/candidates/placed.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "libplan/cost/constants.h"
#include "libplan/request/plan_request.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/search/candidates/even_partitions.h"
#include "libplan/search/candidates/placed_floor.h"
#include "libplan/search/exact/bottleneck.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

ScheduleRequest schedule_request(const PlacedVariant& variant, const ScheduleRow& row, int micro_batches,
                                 int workers) {
  ScheduleRequest what;
  what.name = std::string(row.name);
  what.replicas.assign(at(workers / variant.pipelines), variant.pipelines);
  what.micro_batches = micro_batches;
  what.chunks_per_worker = variant.chunks;
  what.prefetch = variant.prefetch;
  return what;
}

/// As the request says, for schedules with several stages per worker; 0: the schedule's own number.
int asked_chunks(const PlanRequest& request, const ScheduleRow& row) {
  return row.chunks == Chunks::one ? 0 : request.chunks_per_worker;
}

/// Workers that the request fixes; 0: free.
int asked_workers(const PlanRequest& request, const ScheduleRow& row) {
  if (request.stages) return *request.stages;
  if (request.cuts.empty()) return static_cast<int>(request.replicas.size());
  return requested_stages(request) / chunks_of(schedule_request({asked_chunks(request, row)}, row, 1, 1));
}

/// Of one pipeline, which has its share of workers and micro-batches.
Schedule schedule_for(const PlacedVariant& variant, const ScheduleRow& row, int micro_batches, int workers) {
  check_size(schedule_request(variant, row, micro_batches, workers), micro_batches);
  PlacedVariant alone = variant;
  alone.pipelines = 1;
  const int share = workers / variant.pipelines;
  const ScheduleRequest one = schedule_request(alone, row, micro_batches / variant.pipelines, share);
  if (row.generate != nullptr) return make_schedule(one);
  return {replicated_placement(one.replicas), std::vector<WorkerProgram>(at(share))};
}

Schedule schedule_of(const ProgramSet& set, int micro_batches, int devices) {
  const auto refuse = [](const std::string& text) {
    throw Error(ErrorKind::usage, "schedule custom: " + text);
  };
  if (set.micro_batches != micro_batches) {
    refuse("its programs run " + std::to_string(set.micro_batches) + " micro-batches, not " +
           std::to_string(micro_batches) + "; use --micro-batches " + std::to_string(set.micro_batches));
  }
  if (static_cast<int>(set.workers.size()) > devices) {
    refuse("its programs need " + std::to_string(set.workers.size()) + " devices, the cluster has " +
           std::to_string(devices));
  }
  Schedule schedule{set.stage_workers, {}};
  for (const Program& program : set.workers) schedule.workers.push_back({program, std::nullopt});
  return schedule;
}

std::optional<Schedule> schedule_of_variant(const PlacedVariant& variant, const PlanRequest& request,
                                            const ScheduleRow& row, int micro_batches, int devices) {
  if (request.programs) return schedule_of(*request.programs, micro_batches, devices);
  const int asked = asked_workers(request, row);
  if (asked > 0 && std::int64_t{asked} * variant.pipelines != devices) return std::nullopt;
  return schedule_for(variant, row, micro_batches, devices);
}

/// Whole pipelines side by side that the devices and micro-batches of the case divide into, each of no more
/// workers than there are layers: as many as the request says, or any number.
std::vector<int> pipelines_of(const PlanCase& one, const PlanRequest& request) {
  const int workers = static_cast<int>(one.devices.positions.size()), m = one.batch.micro_batches;
  const int given = request.replicas.empty() ? 0 : request.replicas.front();
  const int most = one.schedule.replication != Replication::pipelines ? 1
                   : request.max_replicas > 0                         ? request.max_replicas
                                                                      : m;
  if (request.programs) return {1};
  std::vector<int> pipelines;
  for (int q = 1; q <= std::min({most, m, workers}); ++q) {
    const bool fits = workers % q == 0 && m % q == 0 && workers / q <= one.chain.size();
    const bool lone = request.even_nodes && workers == q && one.schedule.chunks != Chunks::one;
    if (fits && !lone && (given == 0 || given == q)) pipelines.push_back(q);
  }
  return pipelines;
}

/// 0: the schedule's own number. Where it may be any, the more stages a worker has, the shorter is the way to
/// the last worker: every number up to a dozen, in the first layer order. The less of swapped weights is on a
/// device at a time, too: 1, 2, 3, 4, 6, 8, 12, ..
std::vector<int> chunk_counts(const PlanCase& one, const PlanRequest& request, int workers, bool first_order) {
  constexpr int kEvery = 12;
  const int asked = asked_chunks(request, one.schedule);
  if (asked != 0 || one.schedule.chunks != Chunks::several || request.programs) return {asked};
  const int most = one.chain.size() / workers;
  std::vector<int> counts;
  if (one.schedule.rules == RuleSet::swapped) {
    for (int power = 1; power <= most; power *= 2) {
      counts.push_back(power);
      if (power > 1 && power + power / 2 <= most) counts.push_back(power + power / 2);
    }
  } else {
    counts.push_back(2);
    for (int count = 3; first_order && workers > 1 && count <= std::min(kEvery, most); ++count)
      counts.push_back(count);
  }
  return counts;
}

/// Bytes of the largest device of a case.
std::int64_t largest_device(const PlanCase& one, const Cluster& cluster, const PlanRequest& request) {
  std::int64_t bytes = 0;
  for (const int device : one.devices.positions)
    bytes = std::max(bytes, usable_bytes(cluster.devices[at(device)], request));
  return bytes;
}

/// Whether schedules compete that leave the placement to the planner. Their searches alone then say what is
/// short when nothing fits; where none compete that takes a simulated attempt.
bool others_compete(const PlanRequest& request) {
  return std::ranges::any_of(requested_schedules(request),
                             [](const ScheduleRow* row) { return !places_stages(*row); });
}

}  // namespace

std::optional<Schedule> placed_schedule(const PlanRequest& request, const ScheduleRow& row, int micro_batches,
                                        int devices) {
  const int pipelines = request.replicas.empty() ? 1 : request.replicas.front();
  if (devices % pipelines != 0) return std::nullopt;
  return schedule_of_variant({asked_chunks(request, row), false, pipelines}, request, row, micro_batches,
                             devices);
}

double all_work(const PlanCase& one) {
  const MicroBatches& batch = one.in_flight.batch;
  return one.bound_chain.compute(0, one.bound_chain.size()) * batch.total(&MicroBatches::time) /
         batch.least_time();
}

double shared_work(const PlanCase& one) {
  return all_work(one) / static_cast<double>(one.devices.positions.size());
}

std::vector<PlacedVariant> placed_variants(const PlanCase& one, const PlanRequest& request, bool first_order) {
  const bool swapped = one.schedule.rules == RuleSet::swapped;
  const int workers = static_cast<int>(one.devices.positions.size());
  std::vector<PlacedVariant> variants;
  for (const int q : swapped ? std::vector<int>{1} : pipelines_of(one, request)) {
    for (const int chunks : chunk_counts(one, request, workers / q, first_order)) {
      variants.push_back({chunks, false, q});
      if (swapped) variants.push_back({chunks, true, q});
    }
  }
  return variants;
}

PlacedCase::PlacedCase(MachinePart& part, std::shared_ptr<const PlanCase> one, const PlacedVariant& variant)
    : OpenCase(shared_work(*one)), part_(part), one_(std::move(one)), variant_(variant) {}

bool PlacedCase::refine(double best) {
  if (std::exchange(refined_, true)) return false;
  try {
    make_stages();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    refusal_ = error;
  }
  if (!floor_) return bound_ = proven_ = kInfinity, true;
  const bool compete = others_compete(part_.request);
  // Where orders are free, the floor is of the case's: local moves may find another that is faster.
  const BottleneckTest faster = test_bottleneck(space_, *floor_, part_.free_order ? kFar * best : best);
  const bool fits = faster.feasible() && floor_->has_room_again(space_);
  if (fits)
    least_ = search_bottleneck(space_, *floor_, bound_);
  else
    least_ = {faster.partition, faster.feasible() ? kInfinity : faster.next, 1};
  // Where nothing fits and no other schedule says what is short, a simulated attempt does.
  refuted_ = !faster.feasible() && !part_.free_order;
  looked_ = !fits && (compete || least_.value < kInfinity);
  attempt_ = !fits && !looked_;
  if (part_.free_order) return true;
  proven_ = std::max(bound_, least_.value);
  if (fits || looked_) bound_ = proven_;
  return true;
}

void PlacedCase::make_stages() {
  const int workers = static_cast<int>(one_->devices.positions.size());
  std::optional<Schedule> made =
      schedule_of_variant(variant_, part_.request, one_->schedule, one_->batch.micro_batches, workers);
  const int stages = made ? static_cast<int>(made->stage_workers.size()) : 0;
  const int most = std::min(one_->chain.size(), part_.request.max_stages.value_or(stages));
  const bool cut_elsewhere = !part_.request.cuts.empty() && std::ssize(part_.request.cuts) + 1 != stages;
  if (stages == 0 || stages > most || cut_elsewhere) return;
  schedule_ = std::make_shared<const Schedule>(*std::move(made));
  space_ = one_->space;
  space_.devices = space_.exact_stages = stages;
  space_.max_stages = 0;
  space_.max_replicas = 1;
  space_.replicas.clear();
  floor_.emplace(*one_, *schedule_, variant_.pipelines, largest_device(*one_, part_.cluster, part_.request),
                 fastest_links(part_.cluster).messages);
}

std::vector<Finalist> PlacedCase::next(const Worth& worth) {
  constexpr int kSearchedInFull = 16;  // the search by fill and load is quadratic in the stages
  constexpr std::size_t kStarts = 8;   // that the objective likes best: all are simulated
  const bool again = std::exchange(refuted_, false) && bound_ <= worth.bound;
  if (std::exchange(looked_, true) && !again) return {};
  const StageMemory unlimited(one_->chain, one_->in_flight, {});
  const SearchCase what = search_case(*one_, unlimited, part_.cluster, part_.request);
  Costs costs(what, space_);
  std::vector<Candidate> candidates;
  if (variant_.chunks <= 2 && space_.devices <= kSearchedInFull)  // of more, equal stages are as good a start
    candidates = find_candidates(what, space_, costs, {}, kInfinity);
  std::ranges::stable_sort(candidates, {}, &Candidate::estimate);
  candidates.resize(std::min(candidates.size(), kStarts));
  if (is_limited(one_->devices.limit) && !least_.partition.empty())
    candidates.push_back({least_.partition, least_.value, bound_});
  add_even_stages(costs, candidates);
  if (candidates.empty()) return {};
  std::ranges::stable_sort(candidates, {}, &Candidate::estimate);
  Finalist finalist = finalist_of(*one_, candidates.front());
  finalist.placed = schedule_;
  finalist.pipelines = variant_.pipelines;
  finalist.prefetch = variant_.prefetch;
  finalist.bound = proven_;
  finalist.starts.assign(candidates.begin() + 1, candidates.end());
  return {std::move(finalist)};
}

/// Those that are not among the candidates yet.
void PlacedCase::add_even_stages(Costs& costs, std::vector<Candidate>& candidates) {
  auto& [owner, partitions] = part_.even_stages[{&one_->chain, space_.exact_stages}];
  if (!std::exchange(owner, one_->owner))
    partitions = even_partitions(space_, space_.exact_stages, one_->chain);
  for (const Partition& partition : partitions) {
    const auto same = [&](const Candidate& other) { return other.partition == partition; };
    if (std::ranges::any_of(candidates, same)) continue;
    candidates.push_back(
        {partition, objective_of(partition, space_.layers, costs.objective()), 0, Origin::even_stages});
  }
}

}  // namespace pp::plan
