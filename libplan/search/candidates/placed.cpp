#include "libplan/search/candidates/placed.h"

#include <algorithm>
#include <utility>

#include "libplan/schedule/size.h"
#include "libplan/search/candidates/placed_floor.h"
#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/simulate_finalist.h"
#include "libplan/search/zero_bubble/auto_zero_bubble.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

bool is_searched(const ScheduleRow& row) { return row.name == "auto-zb"; }

ScheduleRequest schedule_request(const PlanRequest& request, const ScheduleRow& row, int micro_batches,
                                 int workers) {
  ScheduleRequest what;
  what.name = std::string(row.name);
  what.replicas.assign(static_cast<std::size_t>(workers), 1);
  what.micro_batches = micro_batches;
  what.chunks_per_worker = request.chunks_per_worker;
  return what;
}

/// Workers that the request fixes; 0: free.
int asked_workers(const PlanRequest& request, const ScheduleRow& row) {
  if (request.stages) return *request.stages;
  return requested_stages(request) / chunks_of(schedule_request(request, row, 1, 1));
}

Schedule schedule_for(const PlanRequest& request, const ScheduleRow& row, int micro_batches, int workers) {
  const ScheduleRequest what = schedule_request(request, row, micro_batches, workers);
  check_size(what, micro_batches);
  if (!is_searched(row)) return make_schedule(what);
  return {replicated_placement(what.replicas), std::vector<WorkerProgram>(what.replicas.size())};
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

Assignment assignment_of(const Finalist& finalist) {
  Assignment assignment;
  assignment.stage_layers = stage_layers(finalist.partition, finalist.order);
  for (const auto& workers : finalist.placed->stage_workers) {
    auto& positions = assignment.stage_workers.emplace_back();
    for (const WorkerId worker : workers) positions.push_back(number(worker));
  }
  assignment.worker_devices.assign(finalist.devices.begin(), finalist.devices.begin() + finalist.workers());
  assignment.programs = finalist.placed->workers;
  assignment.micro_batches = finalist.micro_batches;
  return assignment;
}

std::vector<WorkerProgram> zero_bubble_programs(const char* name, const Finalist& finalist) {
  ScheduleRequest request{name, {}, finalist.micro_batches};
  request.replicas.assign(static_cast<std::size_t>(finalist.workers()), 1);
  return make_schedule(request).workers;
}

/// Programs of auto-zb for these stages. Where a worker cannot hold one micro-batch, zb-h1's, which then do not
/// fit either.
std::vector<WorkerProgram> searched_programs(const PricedStages& priced, const Finalist& finalist,
                                             const PricingContext& context, const PlanRequest& request) {
  const Assignment& assignment = finalist.assignment;
  ZeroBubbleRequest search;
  search.pipeline = make_input(priced, assignment, context.cluster, context.model.scale,
                               context.all_reduce_overlap, assignment.micro_batches);
  search.memory_limit = worker_limits(finalist, context.cluster, request);
  try {
    std::vector<WorkerProgram> programs;
    for (Program& program : search_zero_bubble(search).programs.workers)
      programs.push_back({std::move(program), std::nullopt});
    return programs;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
  }
  return zero_bubble_programs("zb-h1", finalist);
}

/// Where a schedule that is searched for takes its programs from.
enum class Programs { search, keep };

/// Sets the assignment: stages, workers, programs.
void arrange(Finalist& finalist, const PricingContext& context, const PlanRequest& request, Programs from) {
  std::vector<WorkerProgram> known = std::move(finalist.assignment.programs);
  finalist.assignment = assignment_of(finalist);
  if (is_searched(*finalist.schedule)) {
    finalist.assignment.programs =
        from == Programs::keep
            ? std::move(known)
            : searched_programs(price_stages(context, finalist.assignment), finalist, context, request);
  }
  finalist.assignment = with_recompute(std::move(finalist.assignment), finalist.again);
}

/// Prediction and what the worst device lacks.
void simulate(Finalist& finalist, const PricingContext& context, const PlanRequest& request) {
  finalist.prediction =
      simulate_prediction(price_stages(context, finalist.assignment), finalist.assignment, context);
  finalist.short_by = std::max(Bytes(0), simulated_shortage(finalist, context.cluster, request));
}

void price(Finalist& finalist, const PricingContext& context, const PlanRequest& request, Programs from) {
  arrange(finalist, context, request, from);
  simulate(finalist, context, request);
}

bool is_better(const Finalist& one, const Finalist& other) {
  return std::pair(one.short_by, one.rounded_step()) < std::pair(other.short_by, other.rounded_step());
}

/// Sets the step of an arranged finalist; false when `best` fits and is no slower. Most moves end here.
bool may_be_better(Finalist& finalist, const Finalist& best, const PricingContext& context) {
  finalist.prediction.step =
      simulated_step(price_stages(context, finalist.assignment), finalist.assignment, context);
  return best.short_by > Bytes(0) || finalist.rounded_step() < best.rounded_step();
}

/// The partition with boundary `cut` (between stages cut-1 and cut) moved by `by` layers; empty when a stage
/// would be.
Partition moved(const Partition& partition, std::size_t cut, int by) {
  Partition result = partition;
  result[cut - 1].end += by;
  result[cut].begin += by;
  if (result[cut - 1].end <= result[cut - 1].begin || result[cut].end <= result[cut].begin) return {};
  return result;
}

bool may_move(const Finalist& finalist, const PricingContext& context, const PlanRequest& request,
              const Partition& partition) {
  const SearchSpace space =
      search_space(context.graph, finalist.order, request, static_cast<int>(partition.size()), 1);
  for (std::size_t s = 1; s < partition.size(); ++s) {
    if (!space.may_cut(partition[s].begin)) return false;
  }
  return !partition.empty();
}

/// Operations that one finalist may have simulated while it is improved, a fraction of a second. Deep pipelines
/// of many micro-batches end there, short of their best.
constexpr std::int64_t kMostOperations = 1'000'000;

/// About what a move simulates that is kept: three chained steps to see that it helps, then the step for its
/// events and the chain again. One that is not kept costs half of it.
std::int64_t operations_of(const Finalist& finalist) {
  constexpr std::int64_t kSteps = 6;
  std::int64_t operations = 0;
  for (const WorkerProgram& worker : finalist.assignment.programs)
    operations += kSteps * static_cast<std::int64_t>(worker.program.size());
  return operations;
}

/// Moves one boundary by one, two or four layers at a time as long as that makes the step faster, under the
/// programs that the finalist has, while operations are left. A boundary is tried again when it or a neighbour
/// has moved. False: none did.
bool move_boundaries(Finalist& finalist, const PricingContext& context, const PlanRequest& request,
                     std::int64_t& operations) {
  const std::size_t cuts = finalist.partition.size() - 1;
  std::vector<char> open(cuts + 2, 1);
  bool ever = false;
  for (std::size_t quiet = 0, cut = 1; quiet < cuts; cut = cut % cuts + 1, ++quiet) {
    if (std::exchange(open[cut], 0) == 0) continue;
    for (const int by : {-1, 1, -2, 2, -4, 4}) {
      Finalist other = finalist;
      other.partition = moved(finalist.partition, cut, by);
      if (operations <= 0 || !may_move(finalist, context, request, other.partition)) continue;
      operations -= operations_of(finalist);
      arrange(other, context, request, Programs::keep);
      if (!may_be_better(other, finalist, context)) continue;
      simulate(other, context, request);
      if (!is_better(other, finalist)) continue;
      finalist = std::move(other);
      open[cut - 1] = open[cut] = open[cut + 1] = 1;
      ever = true;
      quiet = 0;
    }
  }
  return ever;
}

/// Stages that need not run again keep what they save, stage by stage, where that is faster and fits.
void keep_activations(Finalist& finalist, const PricingContext& context, const PlanRequest& request,
                      std::int64_t& operations) {
  for (std::size_t s = 0; s < finalist.again.size() && operations > 0; ++s) {
    operations -= operations_of(finalist);
    Finalist other = finalist;
    other.again[s] = {};
    price(other, context, request, Programs::search);
    if (is_better(other, finalist)) finalist = std::move(other);
  }
}

/// Bytes of the largest device of a case.
std::int64_t largest_device(const PlanCase& one, const Cluster& cluster, const PlanRequest& request) {
  std::int64_t bytes = 0;
  for (const int device : one.devices.positions)
    bytes = std::max(bytes, usable_bytes(cluster.devices[static_cast<std::size_t>(device)], request));
  return bytes;
}

/// Whether schedules compete that leave the placement to the planner. Their searches alone then say what is
/// short when nothing fits; where none compete that takes a simulated attempt.
bool others_compete(const PlanRequest& request) {
  return std::ranges::any_of(requested_schedules(request),
                             [](const ScheduleRow* row) { return !is_placed(*row); });
}

/// Boundaries and, where they are searched for, programs in turn, as long as that helps.
void improve(Finalist& finalist, const PricingContext& context, const PlanRequest& request,
             std::int64_t& operations) {
  while (move_boundaries(finalist, context, request, operations) && is_searched(*finalist.schedule)) {
    Finalist other = finalist;
    price(other, context, request, Programs::search);
    if (!is_better(other, finalist)) return;
    finalist = std::move(other);
  }
}

}  // namespace

bool is_placed(const ScheduleRow& row) { return row.replication == Replication::none && row.synchronous; }

std::optional<Schedule> placed_schedule(const PlanRequest& request, const ScheduleRow& row, int micro_batches,
                                        int devices) {
  if (request.programs) return schedule_of(*request.programs, micro_batches, devices);
  const int asked = asked_workers(request, row);
  if (asked > 0 && asked != devices) return std::nullopt;
  return schedule_for(request, row, micro_batches, devices);
}

double shared_work(const PlanCase& one) {
  const double work = one.bound_chain.compute(0, one.bound_chain.size()) * one.batch.micro_batches;
  return work / static_cast<double>(one.devices.positions.size());
}

std::vector<Finalist> placed_finalists(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
                                       double slowest) {
  if (shared_work(one) > slowest) return {};
  std::optional<Schedule> made = placed_schedule(request, one.schedule, one.batch.micro_batches,
                                                 static_cast<int>(one.devices.positions.size()));
  const auto schedule = made ? std::make_shared<const Schedule>(*std::move(made)) : nullptr;
  const int stages = schedule ? static_cast<int>(schedule->stage_workers.size()) : 0;
  const int most = std::min(one.chain.size(), request.max_stages.value_or(stages));
  const bool cut_elsewhere = !request.cuts.empty() && std::ssize(request.cuts) + 1 != stages;
  if (stages == 0 || stages > most || cut_elsewhere) return {};

  SearchSpace space = one.space;
  space.devices = space.exact_stages = stages;
  space.max_stages = 0;
  space.max_replicas = 1;
  space.replicas.clear();
  const PlacedFloor floor(one, *schedule, largest_device(one, cluster, request));
  const BottleneckResult least = search_bottleneck(space, floor);
  if (!least.feasible() && others_compete(request)) return {};
  const double bound = std::max(shared_work(one), least.feasible() ? least.value : 0);
  if (bound > slowest) return {};

  const StageMemory unlimited(one.chain, one.in_flight, {});
  SearchCase what = search_case(one, unlimited, cluster, request);
  constexpr int kSearchedInFull = 16;  // the search by fill and load is quadratic in the stages
  const SearchLimits limits{.depth = stages <= kSearchedInFull ? Depth::plain : Depth::balanced};
  std::vector<Candidate> candidates = find_candidates(what, space, limits).candidates;
  if (is_limited(one.devices.limit) && least.feasible())
    candidates.push_back({least.partition, least.value, bound});
  std::vector<Finalist> finalists;
  for (const Candidate& candidate : candidates) {
    Finalist& finalist = finalists.emplace_back(finalist_of(one, candidate));
    finalist.placed = schedule;
    finalist.bound = bound;
  }
  return finalists;
}

void settle_placed(Finalist& finalist, const PricingContext& context, const PlanRequest& request, double best) {
  constexpr double kFar = 1.25;  // boundaries move a step by a few percent, and so does a search for an order
  constexpr double kAgain = 4. / 3;  // what running all again costs, backward being about twice a forward
  const std::optional<Recompute> mode = whole_mode(finalist.recompute);
  if (mode != Recompute::never)
    finalist.again =
        whole_stages(static_cast<int>(finalist.partition.size()), mode.value_or(Recompute::always));
  if (is_searched(*finalist.schedule)) finalist.assignment.programs = zero_bubble_programs("zb-h2", finalist);
  price(finalist, context, request, Programs::keep);
  const double hopeful = mode ? kFar * best : kFar * kAgain * best;
  if (finalist.prediction.step.count() > hopeful) return;
  if (is_searched(*finalist.schedule)) price(finalist, context, request, Programs::search);
  std::int64_t operations = kMostOperations;
  if (request.cuts.empty()) improve(finalist, context, request, operations);
  if (!mode) keep_activations(finalist, context, request, operations);
}

}  // namespace pp::plan
