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

class Shortlist {
 public:
  /// All must outlive it. `cluster` is the whole machine; a finalist may use a part of it.
  Shortlist(const Profile& profile, const Cluster& cluster, const PlanGraph& graph, const PlanRequest& request);

  /// Seconds per step of the best finalist so far, by which plans are ranked; infinity: none.
  double best() const { return best_step(1); }
  /// The same of each schedule that has one: each is searched as far as it would be alone.
  const std::map<const ScheduleRow*, double>& steps() const { return best_; }
  /// A plan this much slower does not become the best by local moves or a closer look.
  double far() const;

  /// Prices finalists, the promising first. Left out: known ones, all but the best few by estimate of each
  /// schedule, and those whose bound says that they cannot be among the plan and its listed alternatives
  /// (placed ones: cannot be the plan). Windows that the request leaves open are widened for the links.
  void add(std::vector<Finalist> finalists);

  /// Improves plans on at most `devices` devices by local moves, those of one schedule after those of another,
  /// best first, while operations are left: of every set of stages, replicas and micro-batches the best, once.
  void improve(int devices);
  int improved() const { return improved_; }
  /// Whether the observer of the request has stopped add() or improve(), which have priced some by then.
  bool cut_short() const { return cut_short_; }

  /// What the best attempt of a placed schedule lacks on one device.
  std::optional<Bytes> short_by() const { return short_by_; }
  std::string_view short_schedule() const { return short_schedule_; }
  /// A schedule of which plans were dropped because they have more operations than a plan may, or their streams
  /// repeat too late; empty: none.
  std::string_view endless() const { return endless_; }
  int candidates() const { return candidates_; }
  /// Those that fit, best first.
  std::vector<Finalist> ranked() &&;

 private:
  using Identity = std::tuple<std::string_view, RecomputeMode, Shard, int, std::vector<std::vector<int>>,
                              std::vector<int>, std::vector<int>, bool, std::vector<int>>;
  /// Schedule, recompute, shard, micro-batches, stages, replicas, windows, prefetch, devices.
  static Identity identity(const Finalist& finalist);

  using Shape = std::tuple<const ScheduleRow*, Shard, std::vector<std::vector<int>>, std::vector<int>, int>;
  /// Schedule, shard, stages, replicas, micro-batches.
  static Shape shape(const Finalist& finalist);

  double best_step(std::size_t place) const;
  /// Of the schedule's fastest finalist: each schedule is improved against its own, so that a list of schedules
  /// gives the best of what each gives alone.
  double best_of(const ScheduleRow& schedule) const;
  /// The same on at most `devices` devices, as if the machine had no more, unless that is outclassed anyway.
  double best_near(const ScheduleRow& schedule, int devices) const;
  void improve(const ScheduleRow& schedule, int devices);
  bool is_hopeless(const Finalist& finalist) const;
  /// A placed one, while operations are left.
  bool can_afford(const Finalist& finalist);
  /// Those that add() prices, in turn: not known, not too many of one schedule.
  std::vector<Finalist> choose(std::vector<Finalist> finalists);
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
  bool stops(int devices);
  PricingContext context_of(const Finalist& finalist) const;

  const Profile& profile_;
  const Cluster& cluster_;
  const PlanGraph& graph_;
  const PlanRequest& request_;
  OptimizerCost optimizer_;
  std::map<int, PricedModel> models_;  ///< by micro-batches
  std::set<Identity> known_;
  std::set<Shape> tried_;  ///< by improve()
  std::vector<Finalist> kept_;
  std::multiset<double> steps_;                ///< Finalist::ranked_step() of kept_
  std::map<const ScheduleRow*, double> best_;  ///< the least of each schedule
  std::optional<Bytes> short_by_;
  std::string_view short_schedule_;
  std::string_view endless_;
  std::int64_t placed_operations_ = 0;  ///< of the placed finalists that were priced, once each
  double operations_ = 0;               ///< the same of the others
  int candidates_ = 0;
  int improved_ = 0;
  bool cut_short_ = false;
};

}  // namespace pp::plan
