#include "libplan/search/candidates/placed.h"

#include <algorithm>
#include <cstdint>
#include <limits>

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

/// What a schedule leaves open besides its stages.
struct Variant {
  int chunks = 0;  ///< per worker; 0: the schedule's own
  bool prefetch = false;
  int pipelines = 1;  ///< side by side
};

ScheduleRequest schedule_request(const Variant& variant, const ScheduleRow& row, int micro_batches,
                                 int workers) {
  ScheduleRequest what;
  what.name = std::string(row.name);
  what.replicas.assign(at(workers / variant.pipelines), variant.pipelines);
  what.micro_batches = micro_batches;
  what.chunks_per_worker = variant.chunks;
  what.prefetch = variant.prefetch;
  return what;
}

/// Workers that the request fixes; 0: free.
int asked_workers(const PlanRequest& request, const ScheduleRow& row) {
  if (request.stages) return *request.stages;
  if (request.cuts.empty()) return static_cast<int>(request.replicas.size());
  return requested_stages(request) / chunks_of(schedule_request({request.chunks_per_worker}, row, 1, 1));
}

/// Of one pipeline, which has its share of workers and micro-batches.
Schedule schedule_for(const Variant& variant, const ScheduleRow& row, int micro_batches, int workers) {
  check_size(schedule_request(variant, row, micro_batches, workers), micro_batches);
  Variant alone = variant;
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

std::optional<Schedule> schedule_of_variant(const Variant& variant, const PlanRequest& request,
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
    if (fits && (given == 0 || given == q)) pipelines.push_back(q);
  }
  return pipelines;
}

/// Where weights are swapped, the more stages, the less is on a device at a time: 1, 2, 3, 4, 6, 8, 12, .. per
/// worker, unless the request says how many; each with and without loading ahead.
std::vector<Variant> variants_of(const PlanCase& one, const PlanRequest& request) {
  std::vector<Variant> variants;
  if (one.schedule.rules != RuleSet::swapped) {
    for (const int q : pipelines_of(one, request)) variants.push_back({request.chunks_per_worker, false, q});
    return variants;
  }
  const int most = one.chain.size() / static_cast<int>(one.devices.positions.size());
  std::vector<int> chunks{request.chunks_per_worker};
  if (request.chunks_per_worker == 0) {
    chunks.clear();
    for (int power = 1; power <= most; power *= 2) {
      chunks.push_back(power);
      if (power > 1 && power + power / 2 <= most) chunks.push_back(power + power / 2);
    }
  }
  for (const int count : chunks) {
    for (const bool prefetch : {false, true}) variants.push_back({count, prefetch});
  }
  return variants;
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

/// Those that are not among the candidates yet; by estimate behind all that were searched.
void add_even_stages(const SearchSpace& space, const Chain& chain, std::vector<Candidate>& candidates) {
  for (Partition& partition : even_partitions(space, space.exact_stages, chain)) {
    const auto same = [&](const Candidate& other) { return other.partition == partition; };
    if (std::ranges::any_of(candidates, same)) continue;
    candidates.push_back({std::move(partition), std::numeric_limits<double>::max(), 0, Origin::even_stages});
  }
}

/// Whether a step has more operations than are simulated on so many devices: a forward and both halves of a
/// backward of every stage.
bool is_too_long(const PlanCase& one, int stages) {
  return is_large(one.chain.size(), static_cast<int>(one.devices.positions.size())) &&
         std::int64_t{3} * stages * one.batch.micro_batches > kPlacedOperationsLarge;
}

/// Of one variant, with all partitions to start from; lowers `bound` to what none of its plans can beat.
std::optional<Finalist> finalist_of_variant(const Variant& variant, const PlanCase& one, const Cluster& cluster,
                                            const PlanRequest& request, LayerOrder layers,
                                            const SearchLimits& limits, double& bound) {
  const int workers = static_cast<int>(one.devices.positions.size());
  std::optional<Schedule> made =
      schedule_of_variant(variant, request, one.schedule, one.batch.micro_batches, workers);
  const auto schedule = made ? std::make_shared<const Schedule>(*std::move(made)) : nullptr;
  const int stages = schedule ? static_cast<int>(schedule->stage_workers.size()) : 0;
  const int most = std::min(one.chain.size(), request.max_stages.value_or(stages));
  const bool cut_elsewhere = !request.cuts.empty() && std::ssize(request.cuts) + 1 != stages;
  if (stages == 0 || stages > most || cut_elsewhere) return std::nullopt;

  SearchSpace space = one.space;
  space.devices = space.exact_stages = stages;
  space.max_stages = 0;
  space.max_replicas = 1;
  space.replicas.clear();
  const PlacedFloor floor(one, *schedule, variant.pipelines, largest_device(one, cluster, request));
  // Plans keep to the case's order. Where orders are free, the bound is of all.
  const bool fixed = layers == LayerOrder::fixed;
  const BottleneckTest faster = test_bottleneck(space, floor, limits.slowest);
  const bool fits = faster.feasible() && floor.has_room_again(space);
  if (!fits && (faster.next < kInfinity || others_compete(request))) {
    if (!fixed) bound = std::min(bound, shared_work(one));
    return std::nullopt;
  }
  const double shared = shared_work(one);
  const auto leave_out = [&]() -> std::optional<Finalist> {
    const double enough = std::min(bound, limits.enough);
    bound = std::min(bound, fixed ? std::max(shared, bottleneck_bound(space, floor, enough)) : shared);
    return std::nullopt;
  };
  if (is_too_long(one, stages) && others_compete(request)) return leave_out();
  const StageMemory unlimited(one.chain, one.in_flight, {});
  SearchCase what = search_case(one, unlimited, cluster, request);
  constexpr int kSearchedInFull = 16;  // the search by fill and load is quadratic in the stages
  const SearchLimits near{.near = limits.near,
                          .depth = stages <= kSearchedInFull ? Depth::plain : Depth::balanced};
  std::vector<Candidate> candidates = find_candidates(what, space, near).candidates;
  if (candidates.empty() && limits.near < kInfinity) return leave_out();
  const bool limited = is_limited(one.devices.limit);
  const BottleneckResult least = fixed || limited ? search_bottleneck(space, floor) : BottleneckResult();
  const double own = fixed ? std::max(shared, least.value) : shared;
  bound = std::min(bound, own);
  if (limited && least.feasible()) candidates.push_back({least.partition, least.value, own});
  add_even_stages(space, one.chain, candidates);
  if (candidates.empty()) return std::nullopt;
  std::ranges::stable_sort(candidates, {}, &Candidate::estimate);
  Finalist finalist = finalist_of(one, candidates.front());
  finalist.placed = schedule;
  finalist.pipelines = variant.pipelines;
  finalist.prefetch = variant.prefetch;
  finalist.bound = own;
  finalist.starts.assign(candidates.begin() + 1, candidates.end());
  return finalist;
}

}  // namespace

std::optional<Schedule> placed_schedule(const PlanRequest& request, const ScheduleRow& row, int micro_batches,
                                        int devices) {
  const int pipelines = request.replicas.empty() ? 1 : request.replicas.front();
  if (devices % pipelines != 0) return std::nullopt;
  return schedule_of_variant({request.chunks_per_worker, false, pipelines}, request, row, micro_batches,
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

PlacedFinalists placed_finalists(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
                                 LayerOrder layers, const SearchLimits& limits) {
  PlacedFinalists found;
  if (shared_work(one) > limits.slowest) return found;
  std::optional<Error> refusal;  // the first; others may be taken
  for (const Variant& variant : variants_of(one, request)) {
    try {
      if (auto finalist = finalist_of_variant(variant, one, cluster, request, layers, limits, found.bound))
        found.finalists.push_back(*std::move(finalist));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      if (!refusal) refusal = error;
    }
  }
  if (found.finalists.empty() && found.bound == kInfinity && refusal) throw *refusal;
  return found;
}

}  // namespace pp::plan
