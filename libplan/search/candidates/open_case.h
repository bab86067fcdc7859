// One case of a request while it is open: a bound that rises as more is asked, and its partitions, the
// promising first, as long as some may be worth pricing.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "libplan/cost/lattice.h"
#include "libplan/search/candidates/cases.h"
#include "libplan/search/candidates/ordered_candidates.h"
#include "libprofile/core/error.h"

namespace pp::plan {

/// The devices that a case has: the first ones of the whole machine. All must outlive it.
struct MachinePart {
  MachinePart(const Cluster& some, const PlanGraph& model, const PlanRequest& asked, bool all);
  /// All that the request leaves open on it.
  void for_each_case(const Profile& profile, const std::function<void(const PlanCase&)>& visit);

  Cluster cluster;
  const PlanGraph& graph;
  const PlanRequest& request;
  DeviceLists lists;
  bool whole;       ///< all devices of the machine
  bool free_order;  ///< plans may have other layer orders than the cases: local moves leave theirs
  std::vector<int> first_order{};    ///< of the layers
  std::optional<Lattice> lattice{};  ///< of layers with many orders, of the whole machine
  int devices() const { return static_cast<int>(cluster.devices.size()); }

  /// Searches whose objectives compare: with one way to save memory, over equal replicas or any, on devices
  /// that are alike or on lists of them. With sizes of micro-batches, and PlanCase::search: those that every
  /// layer order has.
  struct Alike {
    RecomputeMode recompute = RecomputeMode::never;
    bool sharded = false, equal_replicas = false, listed = false;
    int search = -1;
    std::vector<int> sizes{};
    auto operator<=>(const Alike&) const = default;
  };
  std::map<Alike, double> objectives{};  ///< the least so far
  /// even_partitions() of a chain into as many stages; what keeps the chain.
  std::map<std::pair<const Chain*, int>, std::pair<std::shared_ptr<const void>, std::vector<Partition>>>
      even_stages{};
};

/// What a partition has to come below to be worth a search, in seconds per step or update: its bound, and its
/// objective on devices that are alike or on a list of them.
struct Worth {
  double bound = std::numeric_limits<double>::infinity();
  double flat = std::numeric_limits<double>::infinity();
  double listed = std::numeric_limits<double>::infinity();
};

/// What takes no long search: data parallelism and even stages, or whatever fits.
enum class Quick { seed, anything };

class OpenCase {
 public:
  virtual ~OpenCase() = default;
  /// That its partitions are for.
  virtual std::vector<const ScheduleRow*> schedules() const = 0;
  /// Seconds per step or update: none of its partitions is faster.
  double bound() const { return bound_; }
  /// The same of all plans that local moves may make of them.
  double proven() const { return proven_; }
  /// Whether prove() may raise that, which takes long.
  virtual bool can_prove() const { return false; }
  /// As far as needed to say whether it is `enough`.
  virtual void prove(double /*enough*/) {}
  /// Why it has no plan at all, once that is known: its schedule refuses it.
  const std::optional<Error>& refusal() const { return refusal_; }
  /// Makes the bound dearer, or leaves it as it is: false.
  virtual bool refine(double best) = 0;
  /// Whether there is more to look for, and whether that is what its objective may misjudge alone.
  virtual bool has_next() const = 0;
  virtual bool misjudges() const = 0;
  /// Its next partitions, not priced, if they are worth it. SearchStopped ends it, and its bounds still hold.
  virtual std::vector<Finalist> next(const Worth& worth) = 0;
  virtual std::vector<Finalist> quick(Quick, const StopSign&) { return {}; }

 protected:
  explicit OpenCase(double bound) : bound_(bound), proven_(bound) {}
  double bound_, proven_;
  std::optional<Error> refusal_{};
};

/// One for each variant of a schedule that places its stages.
std::vector<std::unique_ptr<OpenCase>> open_cases(MachinePart& part, PlanCase one);

/// What no plan of the request undercuts on this cluster or a part of it, if that is below `enough`; else some
/// bound that is not.
double least_bound(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                   const PlanRequest& request, double enough);

}  // namespace pp::plan
