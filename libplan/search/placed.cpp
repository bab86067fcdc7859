#include "libplan/search/placed.h"

#include <algorithm>
#include <utility>

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

Schedule schedule_for(const PlanRequest& request, const ScheduleRow& row, int micro_batches, int workers) {
  const ScheduleRequest what = schedule_request(request, row, micro_batches, workers);
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
  for (const StageRange& stage : finalist.partition) {
    auto& layers = assignment.stage_layers.emplace_back(finalist.order.begin() + stage.begin,
                                                        finalist.order.begin() + stage.end);
    std::ranges::sort(layers);
  }
  for (const auto& workers : finalist.placed->stage_workers) {
    auto& positions = assignment.stage_workers.emplace_back();
    for (const WorkerId worker : workers) positions.push_back(number(worker));
  }
  assignment.worker_devices.assign(finalist.devices.begin(), finalist.devices.begin() + finalist.workers());
  assignment.programs = finalist.placed->workers;
  assignment.micro_batches = finalist.batch.micro_batches;
  return assignment;
}

/// Programs of auto-zb for these stages. Where a worker cannot hold one micro-batch, zb-h1's, which then do not
/// fit either.
std::vector<WorkerProgram> searched_programs(const PricedStages& priced, const Finalist& finalist,
                                             const PricingContext& context, const std::vector<Bytes>& limits) {
  const Assignment& assignment = finalist.assignment;
  ZeroBubbleRequest search;
  search.pipeline = make_input(priced, assignment, context.cluster, context.model.scale,
                               context.all_reduce_overlap, assignment.micro_batches);
  search.memory_limit = limits;
  try {
    std::vector<WorkerProgram> programs;
    for (Program& program : search_zero_bubble(search).programs.workers)
      programs.push_back({std::move(program), std::nullopt});
    return programs;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
  }
  ScheduleRequest fallback{"zb-h1", {}, assignment.micro_batches};
  fallback.replicas.assign(assignment.programs.size(), 1);
  return make_schedule(fallback).workers;
}

/// Where a schedule that is searched for takes its programs from.
enum class Programs { search, keep };

/// Assignment, prediction and what the worst device lacks.
void price(Finalist& finalist, const PricingContext& context, const PlanRequest& request, Programs from) {
  std::vector<WorkerProgram> known = std::move(finalist.assignment.programs);
  finalist.assignment = assignment_of(finalist);
  const PricedStages priced = price_stages(context, finalist.assignment);
  if (is_searched(*finalist.schedule)) {
    const std::vector<Bytes> limits = worker_limits(finalist, context.cluster, request);
    finalist.assignment.programs =
        from == Programs::keep ? std::move(known) : searched_programs(priced, finalist, context, limits);
  }
  finalist.prediction = simulate_prediction(priced, finalist.assignment, context);
  finalist.short_by = std::max(Bytes(0), simulated_shortage(finalist, context.cluster, request));
}

bool is_better(const Finalist& one, const Finalist& other) {
  return std::pair(one.short_by, one.rounded_step()) < std::pair(other.short_by, other.rounded_step());
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

/// Moves one boundary by one, two or four layers at a time as long as that makes the step faster, under the
/// programs that the finalist has. A boundary is tried again when it or a neighbour has moved. False: none did.
bool move_boundaries(Finalist& finalist, const PricingContext& context, const PlanRequest& request) {
  const std::size_t cuts = finalist.partition.size() - 1;
  std::vector<char> open(cuts + 2, 1);
  bool ever = false;
  for (std::size_t quiet = 0, cut = 1; quiet < cuts; cut = cut % cuts + 1, ++quiet) {
    if (std::exchange(open[cut], 0) == 0) continue;
    for (const int by : {-1, 1, -2, 2, -4, 4}) {
      Finalist other = finalist;
      other.partition = moved(finalist.partition, cut, by);
      if (!may_move(finalist, context, request, other.partition)) continue;
      price(other, context, request, Programs::keep);
      if (!is_better(other, finalist)) continue;
      finalist = std::move(other);
      open[cut - 1] = open[cut] = open[cut + 1] = 1;
      ever = true;
      quiet = 0;
    }
  }
  return ever;
}

}  // namespace

bool is_placed(const ScheduleRow& row) { return row.replication == Replication::none && row.synchronous; }

std::vector<Schedule> placed_schedules(const PlanRequest& request, const ScheduleRow& row, int micro_batches,
                                       int devices) {
  if (request.programs) return {schedule_of(*request.programs, micro_batches, devices)};
  std::vector<Schedule> schedules;
  std::optional<Error> refusal;
  const int cut_stages = request.cuts.empty() ? 0 : static_cast<int>(request.cuts.size()) + 1;
  const int chunks = chunks_of(schedule_request(request, row, micro_batches, 1));
  const int asked = request.stages.value_or(cut_stages / chunks);
  for (int workers = asked > 0 ? asked : 1; workers <= (asked > 0 ? asked : devices); ++workers) {
    try {
      schedules.push_back(schedule_for(request, row, micro_batches, workers));
    } catch (const Error& error) {
      if (!refusal) refusal = error;
    }
  }
  if (schedules.empty() && refusal) throw *refusal;
  return schedules;
}

std::vector<Finalist> placed_finalists(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
                                       double& bound) {
  const int devices = static_cast<int>(one.devices.positions.size());
  const StageMemory unlimited(one.chain, one.in_flight, {});
  SearchCase what = search_case(one, unlimited, cluster, request);
  what.limited = false;
  std::vector<Finalist> finalists;
  for (const Schedule& schedule : placed_schedules(request, one.schedule, one.batch.micro_batches, devices)) {
    const int stages = static_cast<int>(schedule.stage_workers.size());
    if (stages > one.chain.size()) continue;
    SearchSpace space = one.space;
    space.devices = space.exact_stages = stages;
    space.max_stages = 0;
    space.max_replicas = 1;
    space.replicas.clear();
    for (const Candidate& candidate : find_candidates(what, {space}).candidates) {
      Finalist finalist{candidate.partition,
                        one.order.layers,
                        one.batch,
                        &one.schedule,
                        one.devices.positions,
                        {},
                        candidate.estimate,
                        {},
                        {}};
      finalist.placed = schedule;
      finalists.push_back(std::move(finalist));
    }
    const double work = one.bound_chain.compute(0, one.bound_chain.size()) * one.batch.micro_batches;
    bound = std::min(bound, work / static_cast<double>(devices));
  }
  return finalists;
}

void settle_placed(Finalist& finalist, const PricingContext& context, const PlanRequest& request) {
  price(finalist, context, request, Programs::search);
  if (!request.cuts.empty()) return;
  while (move_boundaries(finalist, context, request) && is_searched(*finalist.schedule)) {
    Finalist other = finalist;
    price(other, context, request, Programs::search);
    if (!is_better(other, finalist)) return;
    finalist = std::move(other);
  }
}

}  // namespace pp::plan
