#include "libplan/search/shortlist.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "libplan/price/simulated.h"
#include "libplan/request/plan_request.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/search/finalist/simulate_finalist.h"
#include "libplan/search/improve/boundary_moves.h"
#include "libplan/search/improve/covering_windows.h"
#include "libplan/search/improve/stage_moves.h"
#include "libplan/search/parallel.h"

namespace pp::plan {
namespace {

constexpr std::size_t kSimulated = 64;  ///< per call and schedule
constexpr std::size_t kPlaced = 4;      ///< the same of a placed schedule: each is improved by simulation
constexpr std::size_t kSwapped = 32;    ///< of one that swaps: each way to cut is another way to fit
constexpr std::int64_t kPlacedOperations = 8'000'000;  ///< of those in all, about a second a million
constexpr double kOperations = 4e6;                    ///< the same of all others
constexpr double kOperationsLarge = 1e6;               ///< the same on a machine that is_large()
constexpr std::size_t kAtOnce = 8;  ///< whatever the number of threads, which changes no result
constexpr std::int64_t kImprovedFinalists =
    200'000;                                      ///< operations simulated per machine for local improvement
constexpr std::int64_t kImprovedSmall = 500'000;  ///< the same of small models
constexpr std::size_t kListed = 5;  ///< alternatives, whatever PlanRequest::top: it changes no plan
constexpr double kFar = 1.25;       ///< Shortlist::far(), relative to the best
constexpr double kOutclassed =
    1.6;                        ///< a smaller machine whose best is this much slower is not worth local moves
constexpr double kTie = 1e-10;  ///< relative; of sums in another order, so that ties are still seen

/// Cheap ones first, so that the expensive ones are measured against them.
int effort(const Finalist& finalist) {
  if (!finalist.placed) return 0;
  return finalist.schedule->generate != nullptr ? 1 : 2;
}

/// How many of a schedule are priced.
std::size_t most_of(const Finalist& finalist) {
  if (!finalist.placed) return kSimulated;
  return finalist.schedule->rules == RuleSet::swapped ? kSwapped : kPlaced;
}

/// Its device goes to the end of the list.
Finalist without_replica(Finalist finalist, std::size_t stage) {
  auto device = finalist.devices.begin();
  for (std::size_t s = 0; s <= stage; ++s) device += finalist.partition[s].replicas;
  std::rotate(device - 1, device, finalist.devices.end());
  --finalist.partition[stage].replicas;
  finalist.windows.clear();  // they followed the replicas
  return finalist;
}

/// Of a step; of a stream about what steady_length() simulates.
double operations_to_simulate(const Finalist& finalist) {
  if (!finalist.schedule->synchronous) {
    constexpr int kMost = 200'000;
    const int stages = static_cast<int>(finalist.partition.size());
    const int round = stream_round(replicas_of(finalist.partition), finalist.micro_batches, kMost);
    return std::min<double>(kMost, 40.0 * stages * stages * round);
  }
  ScheduleRequest request{.name = std::string(finalist.schedule->name),
                          .replicas = replicas_of(finalist.partition)};
  if (finalist.recompute != RecomputeMode::never) request.recompute = {Recompute::always};
  return operation_count(request, finalist.micro_batches);
}

/// Of them those that are simulated: equal replicas stand for each other.
double simulated_of(const Finalist& finalist, const Cluster& cluster) {
  const std::vector<int> replicas = replicas_of(finalist.partition);
  const bool equal = std::ranges::adjacent_find(replicas, std::ranges::not_equal_to()) == replicas.end();
  if (!equal || !finalist.schedule->synchronous) return operations_to_simulate(finalist);
  const std::vector<int> kept = kept_lanes(replicas.front(), finalist.micro_batches, cluster);
  return operations_to_simulate(finalist) * static_cast<double>(kept.size()) / replicas.front();
}

/// How many of them are priced against the same best: fewer where each takes long.
std::size_t at_once(std::span<const Finalist> finalists, const Cluster& cluster) {
  constexpr double kMost = 1e6;
  std::size_t count = 0;
  for (double operations = 0; count < std::min(kAtOnce, finalists.size()); ++count) {
    operations += simulated_of(finalists[count], cluster);
    if (count > 0 && operations > kMost) break;
  }
  return count;
}

/// As many as keep simulations at the same time below 1 GiB, one at least: each has three chained steps.
int affordable_threads(std::span<Finalist* const> finalists, int wanted) {
  constexpr double kMost = 1 << 30, kPerOperation = 350;
  double bytes = 1;
  for (const Finalist* finalist : finalists)
    bytes = std::max(bytes, kPerOperation * operations_to_simulate(*finalist));
  return static_cast<int>(std::clamp(kMost / bytes, 1.0, std::max(1.0, static_cast<double>(wanted))));
}

/// For check_plan(). Placed ones are made only when they are not.
bool is_too_long(const Finalist& finalist) {
  return !finalist.placed && finalist.schedule->synchronous &&
         operations_to_simulate(finalist) > static_cast<double>(kOperationLimit);
}

}  // namespace

Shortlist::Shortlist(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                     const PlanRequest& request)
    : profile_(profile),
      cluster_(cluster),
      graph_(graph),
      request_(request),
      optimizer_(optimizer_cost(profile, request.optimizer, request.optimizer_state_ratio, request.precision)) {
}

Shortlist::Identity Shortlist::identity(const Finalist& finalist) {
  const auto workers = finalist.devices.begin() + finalist.workers();
  return {finalist.schedule->name,
          finalist.recompute,
          finalist.shared(),
          finalist.micro_batches,
          stage_layers(finalist.partition, finalist.order),
          replicas_of(finalist.partition),
          finalist.windows,
          finalist.prefetch,
          {finalist.devices.begin(), workers}};
}

double Shortlist::best_step(std::size_t place) const {
  if (steps_.size() < place) return std::numeric_limits<double>::infinity();
  return *std::next(steps_.begin(), static_cast<std::ptrdiff_t>(place) - 1);
}

double Shortlist::far() const { return kFar * best(); }

bool Shortlist::is_hopeless(const Finalist& finalist) const {
  if (finalist.placed) return finalist.bound > best() * (1 + kTie);
  return finalist.bound > std::max(best_step(kListed + 1), far());
}

bool Shortlist::can_afford(const Finalist& finalist) {
  const bool large = is_large(graph_.size(), static_cast<int>(cluster_.devices.size()));
  if (!finalist.placed) {
    if (operations_ > (large ? kOperationsLarge : kOperations) &&
        best() < std::numeric_limits<double>::infinity())
      return false;
    operations_ += simulated_of(finalist, cluster_);
    return true;
  }
  if (placed_operations_ > (large ? kPlacedOperationsLarge : kPlacedOperations)) return false;
  constexpr std::int64_t kPasses = 3;  // forward and both halves of the backward
  placed_operations_ += kPasses * std::ssize(finalist.partition) * finalist.micro_batches;
  return true;
}

void Shortlist::add(std::vector<Finalist> finalists) {
  std::vector<Finalist> chosen = choose(std::move(finalists));
  const std::span<Finalist> all(chosen);
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < all.size() && !stops(all[begin].workers()); begin += count) {
    count = at_once(all.subspan(begin), cluster_);
    price(all.subspan(begin, count));
  }
}

std::vector<Finalist> Shortlist::choose(std::vector<Finalist> finalists) {
  std::ranges::stable_sort(finalists, {}, [](const Finalist& finalist) {
    return std::tuple(effort(finalist), finalist.estimate, finalist.workers());
  });
  // Estimates do not know what pipelines side by side save, so each number of them has places of its own.
  std::map<std::tuple<const ScheduleRow*, RecomputeMode, int>, std::size_t> counts;
  std::vector<Finalist> chosen;
  for (Finalist& finalist : finalists) {
    const bool baseline = finalist.partition.size() == 1;  // data parallelism at every width
    std::size_t& count = counts[{finalist.schedule, finalist.recompute, finalist.pipelines}];
    if (count >= most_of(finalist) && !baseline) continue;
    if (is_too_long(finalist)) {
      endless_ = finalist.schedule->name;
      continue;
    }
    if (!known_.insert(identity(finalist)).second) continue;
    ++count;
    ++candidates_;
    chosen.push_back(std::move(finalist));
  }
  return chosen;
}

void Shortlist::price(std::span<Finalist> finalists) {
  std::vector<Finalist*> promising;
  for (Finalist& finalist : finalists) {
    if (is_hopeless(finalist) || !can_afford(finalist)) continue;
    promising.push_back(&finalist);
    if (models_.contains(finalist.micro_batches)) continue;
    const CurveOptions curve{request_.extrapolate, request_.linear_batch};
    models_.emplace(
        finalist.micro_batches,
        price_model(profile_, micro_batch_sizes(request_.mini_batch, finalist.micro_batches), curve));
  }
  std::vector<char> priced(promising.size());
  for_each_index(promising.size(), affordable_threads(promising, request_.threads),
                 [&](std::size_t i) { priced[i] = price(*promising[i]) ? 1 : 0; });
  for (std::size_t i = 0; i < promising.size(); ++i) {
    if (priced[i] != 0) keep(std::move(*promising[i]));
  }
}

bool Shortlist::price(Finalist& finalist) const {
  const PricingContext context = context_of(finalist);
  if (finalist.placed) {
    const bool large = is_large(graph_.size(), static_cast<int>(cluster_.devices.size()));
    const double worth = large ? kNear * best() : std::numeric_limits<double>::infinity();
    return settle_placed(finalist, context, request_, best_of(*finalist.schedule), worth);
  }
  simulate(finalist, context);
  if (finalist.endless) shorten(finalist, context);
  return true;
}

void Shortlist::simulate(Finalist& finalist, const PricingContext& context) const {
  simulate_finalist(finalist, context, request_);
  if (!finalist.endless && has_free_windows(finalist, request_)) widen(finalist, context);
}

void Shortlist::shorten(Finalist& finalist, const PricingContext& context) const {
  const Finalist whole = finalist;
  for (std::size_t s = 0; s < whole.partition.size(); ++s) {
    if (whole.partition[s].replicas == 1) continue;
    Finalist less = without_replica(whole, s);
    simulate(less, context);
    if (less.endless) continue;
    if (finalist.endless || (less.short_by <= finalist.short_by && ranks_before(less, finalist)))
      finalist = std::move(less);
  }
}

void Shortlist::widen(Finalist& finalist, const PricingContext& context) const {
  for (std::vector<int>& windows : covering_windows(finalist, cluster_)) {
    Finalist wide = finalist.unpriced();
    wide.windows = std::move(windows);
    const bool fits = finalist.short_by <= Bytes(0);
    const double worth = fits ? finalist.ranked_step() : std::numeric_limits<double>::infinity();
    if (!simulate_finalist(wide, context, request_, worth)) continue;
    if (!wide.endless && wide.short_by <= finalist.short_by && ranks_before(wide, finalist))
      finalist = std::move(wide);
  }
}

void Shortlist::keep(Finalist finalist) {
  if (finalist.endless) {
    endless_ = finalist.schedule->name;
    return;
  }
  if (finalist.placed && (!short_by_ || finalist.short_by < *short_by_)) {
    short_by_ = finalist.short_by;
    short_schedule_ = finalist.schedule->name;
  }
  if (finalist.short_by > Bytes(0)) return;
  const double step = finalist.ranked_step();
  steps_.insert(step);
  double& best = best_.try_emplace(finalist.schedule, step).first->second;
  best = std::min(best, step);
  kept_.push_back(std::move(finalist));
}

bool Shortlist::stops(int devices) {
  const bool priced = operations_ > 0 || placed_operations_ > 0;
  if (!priced || cut_short_) return cut_short_;  // the most promising are priced in any case
  SearchProgress progress{devices, {}};
  if (!kept_.empty()) progress.best = Seconds(best());
  return cut_short_ = !goes_on(request_, progress);
}

double Shortlist::best_near(const ScheduleRow& schedule, int devices) const {
  double best = kOutclassed * best_of(schedule);
  for (const Finalist& finalist : kept_) {
    if (finalist.schedule == &schedule && finalist.workers() <= devices)
      best = std::min(best, finalist.ranked_step());
  }
  return best;
}

double Shortlist::best_of(const ScheduleRow& schedule) const {
  const auto found = best_.find(&schedule);
  return found == best_.end() ? std::numeric_limits<double>::infinity() : found->second;
}

Shortlist::Shape Shortlist::shape(const Finalist& finalist) {
  return {finalist.schedule, finalist.shard, finalist.assignment.stage_layers, replicas_of(finalist.partition),
          finalist.micro_batches};
}

void Shortlist::improve(int devices) {
  std::vector<const ScheduleRow*> schedules;
  for (const Finalist& finalist : kept_) {
    if (!finalist.placed && std::ranges::count(schedules, finalist.schedule) == 0)
      schedules.push_back(finalist.schedule);
  }
  for (const ScheduleRow* schedule : schedules) improve(*schedule, devices);
}

void Shortlist::improve(const ScheduleRow& schedule, int devices) {
  const double far = kFar * best_near(schedule, devices), alone = best_of(schedule);
  std::vector<std::size_t> starts;  // of kept_, which grows
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const Finalist& finalist = kept_[i];
    if (finalist.schedule == &schedule && finalist.workers() <= devices &&
        finalist.prediction.step.count() <= far && finalist.bound <= alone && !tried_.contains(shape(finalist)))
      starts.push_back(i);
  }
  // Of equal ones first those that could still become the fastest.
  std::ranges::sort(starts, [&](std::size_t i, std::size_t j) {
    const Finalist &a = kept_[i], &b = kept_[j];
    if (a.ranked_step() != b.ranked_step() || a.bound == b.bound) return ranks_before(a, b);
    return a.bound < b.bound;
  });
  std::int64_t operations = is_small(graph_.size(), devices) ? kImprovedSmall : kImprovedFinalists;
  for (const std::size_t start : starts) {
    if (operations <= 0 || stops(devices)) break;
    if (!tried_.insert(shape(kept_[start])).second) continue;
    Finalist finalist = kept_[start];
    const double before = finalist.ranked_step();
    improve_stages(finalist, context_of(finalist), request_, devices, operations);
    if (finalist.ranked_step() >= before || !known_.insert(identity(finalist)).second) continue;
    tried_.insert(shape(finalist));
    finalist.improved = true;
    ++improved_;
    keep(std::move(finalist));
  }
}

PricingContext Shortlist::context_of(const Finalist& finalist) const {
  return {graph_,
          models_.at(finalist.micro_batches),
          cluster_,
          optimizer_,
          request_.all_reduce_overlap.value_or(0),
          swap_link(finalist.schedule->rules, cluster_, request_)};
}

std::vector<Finalist> Shortlist::ranked() && {
  std::ranges::sort(kept_, ranks_before);
  const auto same = std::ranges::unique(kept_, [](const Finalist& a, const Finalist& b) {
    return !ranks_before(a, b);  // two starts of a placed schedule that ended in one plan
  });
  kept_.erase(same.begin(), same.end());
  return std::move(kept_);
}

}  // namespace pp::plan
