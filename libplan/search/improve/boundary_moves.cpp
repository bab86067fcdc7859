#include "libplan/search/improve/boundary_moves.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "libplan/cost/constants.h"
#include "libplan/price/simulated.h"
#include "libplan/search/finalist/pipelines.h"
#include "libplan/search/finalist/simulate_finalist.h"
#include "libplan/search/improve/climb.h"
#include "libplan/search/zero_bubble/auto_zero_bubble.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

bool is_searched(const ScheduleRow& row) { return row.source == ProgramSource::search; }

std::vector<WorkerProgram> zero_bubble_programs(const char* name, const Finalist& finalist) {
  ScheduleRequest request{name, {}, finalist.micro_batches / finalist.pipelines};
  request.replicas.assign(finalist.placed->stage_workers.size(), 1);
  return make_schedule(request).workers;
}

/// Programs of auto-zb for these stages, the same for every pipeline. Where a worker cannot hold one
/// micro-batch, zb-h1's, which then do not fit either.
std::vector<WorkerProgram> searched_programs(const Finalist& finalist, const PricingContext& context,
                                             const PlanRequest& request) {
  const Assignment one = first_pipeline(finalist, std::vector<WorkerProgram>(finalist.placed->workers.size()));
  ZeroBubbleRequest search;
  search.pipeline = make_input(price_stages(context, one), one, context.cluster,
                               first_share(context.model.scale, finalist.pipelines), context.all_reduce_overlap,
                               one.micro_batches);
  search.memory_limit = least_limits(worker_limits(finalist, context.cluster, request), finalist.pipelines);
  try {
    std::vector<WorkerProgram> found;
    for (Program& program : search_zero_bubble(search).programs.workers)
      found.push_back({std::move(program), std::nullopt});
    return found;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
  }
  return zero_bubble_programs("zb-h1", finalist);
}

/// Where a schedule that is searched for takes its programs from.
enum class Programs { search, keep };

/// Sets the assignment, that of the first pipeline: stages, workers, programs, what runs again.
void arrange(Finalist& finalist, const PricingContext& context, const PlanRequest& request, Programs from) {
  std::vector<WorkerProgram> programs = finalist.placed->workers;
  if (is_searched(*finalist.schedule)) {
    programs = from == Programs::keep ? std::move(finalist.assignment.programs)
                                      : searched_programs(finalist, context, request);
  }
  if (finalist.blocks)
    finalist.again =
        first_blocks(context.graph, stage_layers(finalist.partition, finalist.order), *finalist.blocks);
  finalist.assignment = with_recompute(first_pipeline(finalist, programs), finalist.again);
}

/// Prediction and what the worst device lacks, as the first pipeline says it of all.
void simulate(Finalist& finalist, const PricingContext& context, const PlanRequest& request) {
  const int q = finalist.pipelines;
  finalist.prediction = simulate_prediction(price_stages(context, all_pipelines(finalist, Copies::first)),
                                            finalist.assignment, context, first_share(context.model.scale, q));
  if (q > 1) {
    std::vector<WorkerPrediction> all;
    for (const WorkerPrediction& worker : finalist.prediction.workers) all.insert(all.end(), at(q), worker);
    finalist.prediction.workers = std::move(all);
  }
  finalist.short_by = std::max(Bytes(0), simulated_shortage(finalist, context.cluster, request));
}

/// The same of all pipelines, one by one: they meet on links and in all-reduces.
void simulate_all(Finalist& finalist, const PricingContext& context, const PlanRequest& request) {
  finalist.assignment = all_pipelines(finalist, Copies::all);
  finalist.prediction =
      simulate_prediction(price_stages(context, finalist.assignment), finalist.assignment, context);
  finalist.short_by = std::max(Bytes(0), simulated_shortage(finalist, context.cluster, request));
}

/// Lacking memory, then by time.
auto rank(const Finalist& finalist) { return std::pair(finalist.short_by, finalist.rounded_step()); }

/// The boundaries where stages may begin, both ends of the model included.
class Boundaries {
 public:
  Boundaries(const Finalist& finalist, const PricingContext& context, const PlanRequest& request) {
    const int stages = static_cast<int>(finalist.partition.size());
    const SearchSpace space = search_space(context.graph, finalist.order, request, stages, 1);
    for (int k = 0; k <= space.layers; ++k) {
      if (k == 0 || k == space.layers || space.may_cut(k)) open_.push_back(k);
    }
  }

  /// The partition with boundary `cut` (between stages cut-1 and cut) moved by `by` open ones; empty when a
  /// stage would be.
  Partition moved(Partition partition, std::size_t cut, int by) const {
    const auto here = std::ranges::lower_bound(open_, partition[cut].begin) - open_.begin() + by;
    if (here <= 0 || here >= std::ssize(open_)) return {};
    partition[cut - 1].end = partition[cut].begin = open_[at(here)];
    const bool whole =
        partition[cut - 1].begin < partition[cut - 1].end && partition[cut].begin < partition[cut].end;
    return whole ? partition : Partition();
  }

  /// The partition whose stage `to` has a part more and `from` one less: the boundaries between them have moved
  /// by one. Empty when a stage would be.
  Partition shifted(Partition partition, std::size_t from, std::size_t to) const {
    const bool ahead = from < to;
    for (std::size_t i = 0; !partition.empty() && i < std::max(from, to) - std::min(from, to); ++i)
      partition = moved(std::move(partition), ahead ? from + 1 + i : from - i, ahead ? -1 : 1);
    return partition;
  }

 private:
  std::vector<int> open_;
};

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
  constexpr std::int64_t kPrice = 6;  // operations that pricing a worker is worth, those side by side too
  return operations + kPrice * finalist.workers();
}

/// Sets the step of a finalist with an assignment, as the first pipeline says it.
void price_step(Finalist& finalist, const PricingContext& context) {
  const PricedStages priced = price_stages(context, all_pipelines(finalist, Copies::first));
  finalist.prediction.step = simulated_step(priced, finalist.assignment, context,
                                            first_share(context.model.scale, finalist.pipelines));
}

/// Climbs from a priced finalist.
class BoundaryMoves {
 public:
  BoundaryMoves(Finalist& finalist, const PricingContext& context, const PlanRequest& request,
                std::int64_t& operations)
      : context_(context),
        request_(request),
        boundaries_(finalist, context, request),
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

  /// Stages that need not run again keep what they save, stage by stage, where that is faster and fits; or all
  /// but as many first blocks. Whether any do.
  bool keep_activations() {
    from_ = Programs::search;
    std::ranges::fill(open_, 1);
    if (!context_.graph.recompute_blocks.empty()) return keep_blocks();
    bool any = false;
    for (std::size_t s = 0; s < climb_.best().again.size(); ++s) {
      Finalist other = like_best();
      other.again[s] = {};
      any |= climb_.attempt(std::move(other));
    }
    return any;
  }

 private:
  bool keep_blocks() {
    const int most = most_blocks(context_.graph, climb_.best().assignment.stage_layers);
    for (int count = 0; count <= most; ++count) {
      Finalist other = like_best();
      other.blocks = count;
      if (climb_.attempt(std::move(other))) return true;
    }
    return false;
  }

  /// What price() reads of it: its prediction is as long as its programs.
  Finalist like_best() const {
    const Finalist& best = climb_.best();
    Finalist other = best.unpriced();
    other.again = best.again;
    other.blocks = best.blocks;
    if (is_searched(*best.schedule) && from_ == Programs::keep)
      other.assignment.programs = best.assignment.programs;
    return other;
  }

  /// Climb::Price. Most moves end at their step, which takes half as long as all that is known of them.
  bool price(Finalist& other, const Finalist& best, std::int64_t& operations) const {
    operations -= operations_of(best);
    arrange(other, context_, request_, from_);
    price_step(other, context_);
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
    return attempt(boundaries_.moved(climb_.best().partition, cut, by));
  }

  bool attempt(Partition partition) {
    if (partition.empty()) return false;
    Finalist other = like_best();
    other.partition = std::move(partition);
    return climb_.attempt(std::move(other));
  }

  /// A layer of the busiest worker goes to a worker with less work, wherever in the row its stage is.
  bool shift_boundaries() {
    const std::vector<WorkerPrediction>& workers = climb_.best().prediction.workers;
    const auto work = [&](std::size_t stage) {
      Seconds most{};
      for (const WorkerId worker : climb_.best().placed->stage_workers[stage])
        most = std::max(most, workers[index(worker) * at(climb_.best().pipelines)].busy);
      return most;
    };
    const std::size_t stages = climb_.best().partition.size();
    std::vector<Seconds> loads;
    for (std::size_t s = 0; s < stages; ++s) loads.push_back(work(s));
    const Seconds most = (1 - kRounding) * *std::ranges::max_element(loads);
    for (std::size_t from = 0; from < stages; ++from) {
      for (std::size_t to = 0; to < stages; ++to) {
        if (loads[from] < most || loads[to] >= most) continue;
        if (!attempt(boundaries_.shifted(climb_.best().partition, from, to))) continue;
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
  Boundaries boundaries_;
  Programs from_ = Programs::keep;
  std::vector<char> open_;  ///< per boundary, the ends included: to be tried
  bool moved_ = false;      ///< a boundary, since programs were searched for
  Climb climb_;
};

/// The best of the partitions that it may start from, as the first pipeline says it, if their step is below
/// `worth`: those that fit first.
std::vector<Finalist> priced_starts(Finalist finalist, const PricingContext& context,
                                    const PlanRequest& request, double worth) {
  constexpr std::ptrdiff_t kClimbs = 2;  // starts that are worth a climb
  std::vector<Finalist> starts;
  const std::vector<Candidate> others = std::exchange(finalist.starts, {});
  starts.push_back(std::move(finalist));
  for (const Candidate& other : others) {
    Finalist& start = starts.emplace_back(starts.front());
    start.partition = other.partition;
    start.origin = other.origin;
  }
  for (Finalist& start : starts) {
    if (is_searched(*start.schedule)) start.assignment.programs = zero_bubble_programs("zb-h2", start);
    arrange(start, context, request, Programs::keep);
    price_step(start, context);
  }
  std::erase_if(starts, [&](const Finalist& start) { return start.prediction.step.count() >= worth; });
  std::ranges::stable_sort(starts, {}, &Finalist::rounded_step);
  std::ptrdiff_t fitting = 0, simulated = 0;
  for (; simulated < std::ssize(starts) && fitting < kClimbs; ++simulated) {
    Finalist& start = starts[static_cast<std::size_t>(simulated)];
    simulate(start, context, request);
    fitting += start.short_by <= Bytes(0) ? 1 : 0;
  }
  starts.erase(starts.begin() + simulated, starts.end());
  std::ranges::stable_sort(starts, [](const Finalist& a, const Finalist& b) { return rank(a) < rank(b); });
  starts.erase(starts.begin() + std::min(std::ssize(starts), kClimbs), starts.end());
  return starts;
}

void climb(Finalist& start, const PricingContext& context, const PlanRequest& request,
           std::int64_t& operations) {
  if (is_searched(*start.schedule)) {
    arrange(start, context, request, Programs::search);
    simulate(start, context, request);
  }
  BoundaryMoves moves(start, context, request, operations);
  const bool free = request.cuts.empty();
  if (free) moves.move();
  if (!whole_mode(start.recompute) && moves.keep_activations() && free) moves.move();
}

/// The best that is reached from any start.
Finalist climbed(std::vector<Finalist> starts, const PricingContext& context, const PlanRequest& request,
                 std::int64_t& operations) {
  std::int64_t left = std::min(operations, kMostOperations);
  operations -= left;
  for (Finalist& start : starts) {
    if (left > 0) climb(start, context, request, left);
  }
  operations += left;
  return std::move(*std::ranges::min_element(
      starts, [](const Finalist& a, const Finalist& b) { return rank(a) < rank(b); }));
}

}  // namespace

bool price_placed(Finalist& finalist, const PricingContext& context, const PlanRequest& request, double worth) {
  const std::optional<Recompute> mode = whole_mode(finalist.recompute);
  if (!mode && !context.graph.recompute_blocks.empty()) {
    finalist.blocks = static_cast<int>(context.graph.recompute_blocks.size());
  } else if (mode != Recompute::never) {
    finalist.again =
        whole_stages(static_cast<int>(finalist.partition.size()), mode.value_or(Recompute::always));
  }
  std::vector<Finalist> starts = priced_starts(std::move(finalist), context, request, worth);
  if (starts.empty()) return false;
  finalist = std::move(starts.front());
  if (starts.size() > 1)
    finalist.starts.push_back({.partition = starts[1].partition, .origin = starts[1].origin});
  if (finalist.pipelines > 1 && finalist.short_by <= Bytes(0)) simulate_all(finalist, context, request);
  return true;
}

void improve_placed(Finalist& finalist, const PricingContext& context, const PlanRequest& request,
                    std::int64_t& operations) {
  Finalist start = finalist.unpriced();
  start.again = finalist.again;
  start.blocks = finalist.blocks;
  finalist =
      climbed(priced_starts(std::move(start), context, request, kInfinity), context, request, operations);
  if (finalist.pipelines > 1 && finalist.short_by <= Bytes(0)) simulate_all(finalist, context, request);
}

}  // namespace pp::plan
