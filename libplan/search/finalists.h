// The short list: candidates of all cases, the best by the search's estimate simulated, the rest dropped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libplan/search/cases.h"
#include "libplan/search/planner.h"
#include "libplan/search/pricing.h"

namespace pp::plan {

/// A candidate with everything its case knew, and what the simulator says.
struct Finalist {
  Partition partition;
  std::vector<int> order;  ///< layer at each position
  BatchOption batch;
  const ScheduleRow* schedule = nullptr;
  std::vector<int> devices;        ///< positions in the cluster, for the workers in turn
  std::optional<Schedule> placed;  ///< of schedules that place the stages themselves (placed.h)
  double estimate = 0;
  std::vector<int> windows{};  ///< micro-batches in flight per stage; empty: by the request's rule
  Assignment assignment{};
  Prediction prediction{};
  Bytes short_by{
      0};  ///< of the worst device, by the simulated peaks; the search itself keeps to the limits unless placed

  int workers() const { return placed ? static_cast<int>(placed->workers.size()) : device_count(partition); }
  std::int64_t peak() const;
  /// The step time to 36 bits, so that equal plans tie whatever the order of their sums.
  double rounded_step() const;
};

struct SearchOutcome {
  std::vector<Finalist> ranked;   ///< simulated, best first; empty: nothing fits
  std::optional<Bytes> short_by;  ///< nothing fits, placed schedules: what the best attempt lacks on one device
  double bound = 0;               ///< seconds per step; no plan of the searched family is faster
  std::string bound_holds;        ///< Gathered::bound_holds
  int orders = 0;                 ///< distinct layer orders of one case
  int batches = 0;
  int schedules = 0;
  int candidates = 0;
  int improved = 0;  ///< of `ranked`, by local moves
};

/// Stages, workers and programs of a finalist whose schedule does not place its stages.
Assignment assign(const Finalist& finalist, const PlanGraph& graph, const PlanRequest& request);
/// Bytes that each worker of a finalist may use.
std::vector<Bytes> worker_limits(const Finalist& finalist, const Cluster& cluster, const PlanRequest& request);
/// What the simulated peak of the worst worker lacks on its device; not above 0: all fit.
Bytes simulated_shortage(const Finalist& finalist, const Cluster& cluster, const PlanRequest& request);

/// Equal step times rank by devices, then stages, then peak bytes, then schedule and stages in byte order.
SearchOutcome search_and_price(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                               const PlanRequest& request);

/// `7|5` and `1-1` of a partition.
std::string stages_text(const Partition& partition);
std::string replicas_text(const Partition& partition);

}  // namespace pp::plan
