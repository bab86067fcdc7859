#include "libplan/search/improve/boundary_moves.h"

#include <algorithm>
#include <array>
#include <utility>

#include "libplan/search/improve/climb.h"
#include "libplan/search/simulate_finalist.h"
#include "libplan/search/simulated.h"
#include "libplan/search/zero_bubble/auto_zero_bubble.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

bool is_searched(const ScheduleRow& row) { return row.source == ProgramSource::search; }

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
  assignment.rules = finalist.schedule->rules;
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

/// Lacking memory, then by time.
auto rank(const Finalist& finalist) { return std::pair(finalist.short_by, finalist.rounded_step()); }

/// The partition whose stage `to` has a layer more and `from` one less: the boundaries between them have moved
/// by one. Empty when `from` has no other.
Partition shifted(Partition partition, std::size_t from, std::size_t to) {
  if (partition[from].end - partition[from].begin == 1) return {};
  const int by = from < to ? -1 : 1;
  for (std::size_t cut = std::min(from, to) + 1; cut <= std::max(from, to); ++cut) {
    partition[cut - 1].end += by;
    partition[cut].begin += by;
  }
  return partition;
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

constexpr double kRounding = 1e-9;  ///< relative; of sums in another order

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

/// Climbs from a priced finalist.
class BoundaryMoves {
 public:
  BoundaryMoves(Finalist& finalist, const PricingContext& context, const PlanRequest& request,
                std::int64_t& operations)
      : context_(context),
        request_(request),
        open_(finalist.partition.size() + 1, 1),
        climb_(finalist, operations, [this](Finalist& other, const Finalist& best, std::int64_t& left) {
          return price(other, best, left);
        }) {}

  /// Boundaries and, where they are searched for, programs in turn, as long as that helps.
  void move() {
    const std::array<Pass, 3> passes{[this](Climb&) { return move_boundaries(); },
                                     [this](Climb&) { return shift_boundaries(); },
                                     [this](Climb&) { return search_programs(); }};
    run(climb_, passes);
  }

  /// Stages that need not run again keep what they save, stage by stage, where that is faster and fits.
  void keep_activations() {
    from_ = Programs::search;
    for (std::size_t s = 0; s < climb_.best().again.size(); ++s) {
      Finalist other = climb_.best();
      other.again[s] = {};
      climb_.attempt(std::move(other));
    }
  }

 private:
  /// Climb::Price. Most moves end at their step, which takes half as long as all that is known of them.
  bool price(Finalist& other, const Finalist& best, std::int64_t& operations) const {
    operations -= operations_of(best);
    arrange(other, context_, request_, from_);
    const PricedStages priced = price_stages(context_, other.assignment);
    other.prediction.step = simulated_step(priced, other.assignment, context_);
    if (best.short_by <= Bytes(0) && other.rounded_step() >= best.rounded_step()) return false;
    simulate(other, context_, request_);
    return rank(other) < rank(best);
  }

  /// By one, two or four layers at a time under the programs that the finalist has. A boundary is tried again
  /// when it or a neighbour has moved.
  bool move_boundaries() {
    from_ = Programs::keep;
    const std::size_t cuts = climb_.best().partition.size() - 1;
    bool ever = false;
    for (std::size_t quiet = 0, cut = 1; quiet < cuts; cut = cut % cuts + 1, ++quiet) {
      if (std::exchange(open_[cut], 0) == 0) continue;
      for (const int by : {-1, 1, -2, 2, -4, 4}) {
        if (!move_boundary(cut, by)) continue;
        open_[cut - 1] = open_[cut] = open_[cut + 1] = 1;
        ever = true;
        quiet = 0;
      }
    }
    moved_ |= ever;
    return ever;
  }

  bool move_boundary(std::size_t cut, int by) {
    Finalist other = climb_.best();
    other.partition = moved(other.partition, cut, by);
    return may_move(other, context_, request_, other.partition) && climb_.attempt(std::move(other));
  }

  /// A layer of the busiest worker goes to a worker with less work, wherever in the row its stage is.
  bool shift_boundaries() {
    const std::vector<WorkerPrediction>& workers = climb_.best().prediction.workers;
    const auto work = [&](std::size_t stage) {
      Seconds most{};
      for (const WorkerId worker : climb_.best().placed->stage_workers[stage])
        most = std::max(most, workers[index(worker)].busy);
      return most;
    };
    const std::size_t stages = climb_.best().partition.size();
    std::vector<Seconds> loads;
    for (std::size_t s = 0; s < stages; ++s) loads.push_back(work(s));
    const Seconds most = (1 - kRounding) * *std::ranges::max_element(loads);
    for (std::size_t from = 0; from < stages; ++from) {
      for (std::size_t to = 0; to < stages; ++to) {
        if (loads[from] < most || loads[to] >= most) continue;
        Finalist other = climb_.best();
        other.partition = shifted(other.partition, from, to);
        if (!may_move(other, context_, request_, other.partition) || !climb_.attempt(std::move(other)))
          continue;
        std::ranges::fill(open_, 1);
        return moved_ = true;
      }
    }
    return false;
  }

  bool search_programs() {
    if (!is_searched(*climb_.best().schedule) || !std::exchange(moved_, false)) return false;
    from_ = Programs::search;
    if (!climb_.attempt(climb_.best())) return false;
    std::ranges::fill(open_, 1);
    return true;
  }

  const PricingContext& context_;
  const PlanRequest& request_;
  Programs from_ = Programs::keep;
  std::vector<char> open_;  ///< per boundary, the ends included: to be tried
  bool moved_ = false;      ///< a boundary, since programs were searched for
  Climb climb_;
};

/// The best of the partitions that it may start from, priced.
std::vector<Finalist> best_starts(Finalist finalist, const PricingContext& context,
                                  const PlanRequest& request) {
  constexpr std::size_t kClimbs = 2;
  std::vector<Finalist> starts;
  const std::vector<Candidate> others = std::exchange(finalist.starts, {});
  starts.push_back(std::move(finalist));
  for (const Candidate& other : others) {
    Finalist& start = starts.emplace_back(starts.front());
    start.partition = other.partition;
    start.origin = other.origin;
  }
  for (Finalist& start : starts) {
    arrange(start, context, request, Programs::keep);
    simulate(start, context, request);
  }
  std::ranges::stable_sort(starts, [](const Finalist& a, const Finalist& b) { return rank(a) < rank(b); });
  starts.erase(starts.begin() + std::min(std::ssize(starts), std::ptrdiff_t{kClimbs}), starts.end());
  return starts;
}

/// From a start whose step is at most `hopeful`, while operations are left.
void climb(Finalist& start, const PricingContext& context, const PlanRequest& request, double hopeful,
           std::int64_t& operations) {
  if (start.prediction.step.count() > hopeful || operations <= 0) return;
  if (is_searched(*start.schedule)) {
    arrange(start, context, request, Programs::search);
    simulate(start, context, request);
  }
  BoundaryMoves moves(start, context, request, operations);
  if (request.cuts.empty()) moves.move();
  if (!whole_mode(start.recompute)) moves.keep_activations();
}

}  // namespace

void settle_placed(Finalist& finalist, const PricingContext& context, const PlanRequest& request, double best) {
  constexpr double kFar = 1.25;  // boundaries move a step by a few percent, and so does a search for an order
  constexpr double kAgain = 4. / 3;  // what running all again costs, backward being about twice a forward
  const std::optional<Recompute> mode = whole_mode(finalist.recompute);
  if (mode != Recompute::never)
    finalist.again =
        whole_stages(static_cast<int>(finalist.partition.size()), mode.value_or(Recompute::always));
  if (is_searched(*finalist.schedule)) finalist.assignment.programs = zero_bubble_programs("zb-h2", finalist);
  const double hopeful = mode ? kFar * best : kFar * kAgain * best;
  std::vector<Finalist> starts = best_starts(std::move(finalist), context, request);
  std::int64_t operations = kMostOperations;
  for (Finalist& start : starts) climb(start, context, request, hopeful, operations);
  finalist = std::move(*std::ranges::min_element(
      starts, [](const Finalist& a, const Finalist& b) { return rank(a) < rank(b); }));
}

}  // namespace pp::plan
