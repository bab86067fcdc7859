#include "libplan/search/shortlist.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "libplan/cost/constants.h"
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
constexpr std::size_t kAtOnce = 8;            ///< whatever the number of threads, which changes no result
constexpr std::int64_t kClimbed = 2'000'000;  ///< operations simulated by the climbs of one schedule
constexpr std::size_t kListed = 5;            ///< alternatives, whatever PlanRequest::top: it changes no plan
constexpr double kAgain = 4. / 3;  ///< what running all again costs, backward being about twice a forward

/// How many like it are priced, from one search.
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
      optimizers_(
          optimizer_costs(profile, request.optimizer, request.optimizer_state_ratio, request.precision)) {
  const std::vector<double> rates = kind_rates(profile);
  const auto speed = [&](const Device& device) { return rates[at(device.profile)] * device.speed; };
  const auto [slowest, fastest] = std::ranges::minmax(cluster.devices, {}, speed);
  spread_ = speed(fastest) / speed(slowest);
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

bool Shortlist::is_full() const { return steps_.size() > std::min(kListed, at(std::max(0, request_.top))); }

double Shortlist::far() const { return kFar * best(); }

double Shortlist::far(const Finalist& finalist) const {
  const bool small = is_small(graph_.size(), static_cast<int>(cluster_.devices.size()));
  const double flat = small ? kFar * best_of(*finalist.schedule) : far();
  if (!finalist.placed) return flat;
  return (finalist.recompute == RecomputeMode::automatic ? kAgain : 1) * spread_ * flat;
}

double Shortlist::worth(int devices, bool listed) const {
  const double far = is_small(graph_.size(), devices) ? kFar : kNear;  // small models are searched in full
  return best() == kInfinity ? kInfinity : far * (listed ? best() : std::max(best(), least_flat_));
}

bool Shortlist::is_worth_pricing(const Finalist& finalist, int devices) const {
  const bool listed = finalist.origin == Origin::device_list;
  if (finalist.estimate <= worth(devices, listed)) return true;
  if (!is_small(graph_.size(), devices)) return false;
  // As far as the schedule would be searched alone.
  const auto flat = flat_.find(finalist.schedule);
  const double best = best_of(*finalist.schedule);
  const double own = listed ? best : flat == flat_.end() ? kInfinity : std::max(best, flat->second);
  return finalist.estimate <= kFar * own;
}

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

bool Shortlist::takes(const Finalist& finalist, int devices, bool misjudged) {
  // Estimates do not know what pipelines side by side and stages of one worker save, so each number of them has
  // places of its own; data parallelism is priced at every width.
  const int chunks = finalist.placed ? static_cast<int>(finalist.partition.size()) : 0;
  std::size_t& count = counts_[{finalist.schedule, finalist.recompute, finalist.shared(), finalist.pipelines,
                                chunks, devices, misjudged}];
  if (count >= most_of(finalist) && finalist.partition.size() != 1) return false;
  if (is_too_long(finalist) || skips_readers(finalist, graph_)) {
    endless_ = finalist.schedule->name;
    return false;
  }
  if (!is_small(graph_.size(), devices)) {  // of other layer orders only what estimates less
    const auto first = orders_
                           .try_emplace({finalist.schedule, finalist.recompute, finalist.shard,
                                         finalist.micro_batches, finalist.pipelines, chunks, devices},
                                        finalist.order)
                           .first;
    if (first->second != finalist.order) return false;
  }
  if (!finalist.placed && finalist.partition.size() > 1 && !is_worth_pricing(finalist, devices)) return false;
  if (is_hopeless(finalist) || !known_.insert(identity(finalist)).second) return false;
  ++count;
  ++candidates_;
  return true;
}

std::size_t Shortlist::price_some(std::span<Finalist> finalists) {
  const std::size_t count = at_once(finalists, cluster_);
  price(finalists.subspan(0, count));
  return count;
}

void Shortlist::price(std::span<Finalist> finalists) {
  std::vector<Finalist*> promising;
  for (Finalist& finalist : finalists) {
    if (is_hopeless(finalist) || !can_afford(finalist)) continue;  // by now
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
    return price_placed(finalist, context, request_, far(finalist));
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
  if (finalist.short_by > Bytes(0)) {
    if (finalist.placed) priced_.push_back(std::move(finalist));
    return;
  }
  if (!finalist.placed && finalist.origin != Origin::device_list) {
    double& least = flat_.try_emplace(finalist.schedule, finalist.estimate).first->second;
    least = std::min(least, finalist.estimate);
    least_flat_ = std::min(least_flat_, least);
  }
  const double step = finalist.ranked_step();
  steps_.insert(step);
  double& best = best_.try_emplace(finalist.schedule, step).first->second;
  best = std::min(best, step);
  priced_.push_back(std::move(finalist));
}

bool Shortlist::stops(int devices) {
  const bool priced = operations_ > 0 || placed_operations_ > 0;
  if (!priced || cut_short_) return cut_short_;  // the most promising are priced in any case
  SearchProgress progress{devices, {}};
  if (best() < kInfinity) progress.best = Seconds(best());
  return cut_short_ = !goes_on(request_, progress);
}

double Shortlist::best_of(const ScheduleRow& schedule) const {
  const auto found = best_.find(&schedule);
  return found == best_.end() ? std::numeric_limits<double>::infinity() : found->second;
}

double Shortlist::best_of(std::span<const ScheduleRow* const> schedules) const {
  double slowest = 0;
  for (const ScheduleRow* schedule : schedules) slowest = std::max(slowest, best_of(*schedule));
  return slowest;
}

Shortlist::Shape Shortlist::shape(const Finalist& finalist) {
  const bool again = finalist.placed || recomputed_layers(finalist.again, finalist.assignment) > 0;
  return {
      finalist.schedule,     again ? finalist.recompute : RecomputeMode::never, finalist.shard,
      finalist.pipelines,    stage_layers(finalist.partition, finalist.order),  replicas_of(finalist.partition),
      finalist.micro_batches};
}

void Shortlist::climb(std::size_t start, int devices) {
  const Finalist& before = priced_[start];
  if (before.prediction.step.count() > far(before) || before.bound > best_of(*before.schedule)) return;
  // What one search finds is alike, and leads to the same neighbours: each has a part of its own.
  const std::int64_t parts = before.placed ? 2 : 6;
  const RecomputeMode mode = std::get<RecomputeMode>(shape(before));
  const int machine = before.placed ? 0 : devices;
  std::int64_t& left = climbs_.try_emplace({before.schedule, machine, {}, 0, {}}, kClimbed).first->second;
  std::int64_t& part =
      climbs_
          .try_emplace({before.schedule, machine, mode, before.micro_batches, before.origin}, kClimbed / parts)
          .first->second;
  std::int64_t operations = std::min(left, part);
  if (operations <= 0 || !tried_.insert(shape(before)).second) return;
  const std::int64_t given = operations;
  Finalist finalist = before;
  if (finalist.placed)
    improve_placed(finalist, context_of(finalist), request_, operations);
  else
    improve_stages(finalist, context_of(finalist), request_, devices, operations);
  left -= given - operations, part -= given - operations;
  const bool fits = before.short_by <= Bytes(0);
  if (finalist.short_by > Bytes(0) || (fits && finalist.ranked_step() >= before.ranked_step())) return;
  // Programs, and what runs again, may be all that has changed.
  if (!known_.insert(identity(finalist)).second && identity(finalist) != identity(before)) return;
  tried_.insert(shape(finalist));
  finalist.improved = true;
  ++improved_;
  keep(std::move(finalist));
}

PricingContext Shortlist::context_of(const Finalist& finalist) const {
  return {graph_,
          models_.at(finalist.micro_batches),
          cluster_,
          optimizers_.front(),
          request_.all_reduce_overlap.value_or(0),
          swap_link(finalist.schedule->rules, cluster_, request_),
          optimizers_};
}

std::vector<Finalist> Shortlist::ranked() && {
  std::erase_if(priced_, [](const Finalist& finalist) { return finalist.short_by > Bytes(0); });
  std::ranges::sort(priced_, ranks_before);
  const auto same = std::ranges::unique(priced_, [](const Finalist& a, const Finalist& b) {
    return !ranks_before(a, b);  // two starts of a placed schedule that ended in one plan
  });
  priced_.erase(same.begin(), same.end());
  return std::move(priced_);
}

}  // namespace pp::plan
