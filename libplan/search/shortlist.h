// Finalists of all searches of one request: prices each once by the simulator and keeps those that fit. What
// provably cannot win is not simulated.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

constexpr double kTie = 1e-10;  ///< relative; of sums in another order, so that ties are still seen

class Shortlist {
 public:
  /// All must outlive it. `cluster` is the whole machine; a finalist may use a part of it.
  Shortlist(const Profile& profile, const Cluster& cluster, const PlanGraph& graph, const PlanRequest& request);

  /// Seconds per step of the best finalist so far, by which plans are ranked; infinity: none.
  double best() const { return best_step(1); }
  /// The same of the schedule that has the slowest; infinity where one has none.
  double best_of(std::span<const ScheduleRow* const> schedules) const;
  /// The largest objective, on so many devices and a list of them or not, with which a partition is worth
  /// pricing.
  double worth(int devices, bool listed) const;
  /// The same of each schedule that has one: each is searched as far as it would be alone.
  const std::map<const ScheduleRow*, double>& steps() const { return best_; }
  /// Whether it has all alternatives that the request lists.
  bool is_full() const;
  /// A plan this much slower does not become the best by local moves or a closer look.
  double far() const;

  /// Whether a finalist from a search on so many devices is to be priced. Left out: known ones, all but the
  /// first few of each schedule, those that are estimated far from the best, and those whose bound says that
  /// they cannot be among the plan and its listed alternatives (placed ones: cannot be the plan). `misjudged`:
  /// found by a search for what estimates misjudge.
  bool takes(const Finalist& finalist, int devices, bool misjudged);
  /// Prices the first few at the same time, against the same best, with windows widened for the links where the
  /// request leaves them open; how many.
  std::size_t price_some(std::span<Finalist> finalists);
  /// Plans that were priced, in the order in which they were; those that do not fit are of schedules that place
  /// their stages, and may fit when they are improved.
  const std::vector<Finalist>& priced() const { return priced_; }

  /// Improves one of them by local moves on at most `devices` devices, while operations of its schedule are
  /// left there: of every set of stages, replicas and micro-batches the first, once.
  void climb(std::size_t start, int devices);
  int improved() const { return improved_; }
  /// Whether the observer of the request ends the search, which has priced some by then.
  bool stops(int devices);
  bool cut_short() const { return cut_short_; }

  /// What the best attempt of a placed schedule lacks on one device.
  std::optional<Bytes> short_by() const { return short_by_; }
  std::string_view short_schedule() const { return short_schedule_; }
  /// A schedule of which plans were dropped because they have more operations than a plan may, their streams
  /// repeat too late, or frames would miss a reader; empty: none.
  std::string_view endless() const { return endless_; }
  int candidates() const { return candidates_; }
  /// Those that fit, best first.
  std::vector<Finalist> ranked() &&;

 private:
  using Identity = std::tuple<std::string_view, RecomputeMode, Shard, int, std::vector<std::vector<int>>,
                              std::vector<int>, std::vector<int>, bool, std::vector<int>>;
  /// Schedule, recompute, shard, micro-batches, stages, replicas, windows, prefetch, devices.
  static Identity identity(const Finalist& finalist);

  using Shape = std::tuple<const ScheduleRow*, RecomputeMode, Shard, int, std::vector<std::vector<int>>,
                           std::vector<int>, int>;
  /// Schedule, recompute, shard, pipelines, stages, replicas, micro-batches.
  static Shape shape(const Finalist& finalist);

  double best_step(std::size_t place) const;
  /// The same of one before it is improved: schedules that place their stages cut the layers as if devices were
  /// equal, and `automatic` begins with all of them run again.
  double far(const Finalist& finalist) const;
  /// Of the schedule's fastest finalist: each schedule is improved against its own, so that a list of schedules
  /// gives the best of what each gives alone.
  double best_of(const ScheduleRow& schedule) const;
  bool is_hopeless(const Finalist& finalist) const;
  /// By its estimate; not asked of placed ones, and of data parallelism.
  bool is_worth_pricing(const Finalist& finalist, int devices) const;
  /// A placed one, while operations are left.
  bool can_afford(const Finalist& finalist);
  /// Prices a few at the same time, against the same best.
  void price(std::span<Finalist> finalists);
  /// False: it has turned out too slow to be kept.
  bool price(Finalist& finalist) const;
  /// With the windows that suit it.
  void simulate(Finalist& finalist, const PricingContext& context) const;
  /// Takes the best with one replica less of those whose streams repeat in time.
  void shorten(Finalist& finalist, const PricingContext& context) const;
  /// Takes the windows that cover the links, where they are faster and fit.
  void widen(Finalist& finalist, const PricingContext& context) const;
  void keep(Finalist finalist);
  PricingContext context_of(const Finalist& finalist) const;

  const Profile& profile_;
  const Cluster& cluster_;
  const PlanGraph& graph_;
  const PlanRequest& request_;
  std::vector<OptimizerCost> optimizers_;  ///< by kind of device
  double spread_ = 1;                      ///< the fastest device, of the slowest
  std::map<int, PricedModel> models_;      ///< by micro-batches
  std::set<Identity> known_;
  std::set<Shape> tried_;  ///< by climb()
  std::map<std::tuple<const ScheduleRow*, RecomputeMode, Shard, int, int, int, bool>, std::size_t>
      counts_;  ///< by takes()
  std::map<std::tuple<const ScheduleRow*, int, RecomputeMode, int, Origin>, std::int64_t>
      climbs_;  ///< operations that are left to a schedule on a part of the machine (0 micro-batches), and to
                ///< what one search found
  std::map<std::tuple<const ScheduleRow*, RecomputeMode, Shard, int, int, int, int>, std::vector<int>>
      orders_;  ///< of the first
  std::vector<Finalist> priced_;
  std::set<double> steps_;                     ///< Finalist::ranked_step() of priced_
  std::map<const ScheduleRow*, double> best_;  ///< the least of each schedule
  std::optional<Bytes> short_by_;
  std::string_view short_schedule_;
  std::string_view endless_;
  std::int64_t placed_operations_ = 0;  ///< of the placed finalists that were priced, once each
  double operations_ = 0;               ///< the same of the others
  /// The least objective of those that fit and were found without regard to single devices, whose links the
  /// objective takes for the slowest, so that it may be above every step: of each schedule, and of all.
  std::map<const ScheduleRow*, double> flat_;
  double least_flat_ = std::numeric_limits<double>::infinity();
  int candidates_ = 0;
  int improved_ = 0;
  bool cut_short_ = false;
};

}  // namespace pp::plan
