// A candidate that may become the plan: with everything its case knew, and what the simulator says about it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libplan/price/pricing.h"
#include "libplan/price/recompute_choice.h"
#include "libplan/request/request.h"
#include "libplan/search/finalist/candidate.h"

namespace pp::plan {

/// What is to be priced.
struct Proposal {
  Partition partition;
  std::vector<int> order;  ///< layer at each position
  int micro_batches = 1;
  const ScheduleRow* schedule = nullptr;
  std::vector<int> devices;  ///< positions in the cluster, for the workers in turn
  /// Of schedules that place the stages themselves (placed.h); one for all finalists of a case. Null: of
  /// others.
  std::shared_ptr<const Schedule> placed;
  int pipelines = 1;                ///< of `placed`, which is one of them, side by side
  std::vector<Candidate> starts{};  ///< of `placed`: other partitions that local moves may start from
  bool prefetch = false;            ///< of `placed`: weights are loaded a task ahead
  Origin origin = Origin::points;
  bool improved = false;  ///< by local moves
  double estimate = 0;    ///< the search's objective
  double bound = 0;       ///< seconds per step; these stages cannot be faster under this schedule
  RecomputeMode recompute = RecomputeMode::never;  ///< of its case; automatic: `again` is chosen for it
  Shard shard = Shard::none;                       ///< what replicas would share, if there are any
  std::vector<int> windows{};  ///< micro-batches in flight per stage; empty: by the request's rule
};

struct Finalist : Proposal {
  Finalist() = default;
  explicit Finalist(Proposal proposal) : Proposal(std::move(proposal)) {}
  /// The proposal, to be priced in another shape.
  Finalist unpriced() const { return Finalist(static_cast<const Proposal&>(*this)); }

  RecomputeChoice again{};      ///< what its stages run again
  std::optional<int> blocks{};  ///< so many first_blocks() of each, which `again` follows; none: any
  Assignment assignment{};
  Prediction prediction{};
  Bytes short_by{0};     ///< of the worst device, by the simulated peaks; 0: fits
  bool endless = false;  ///< its streams repeat too late for check_plan() (queues.h); it has no prediction

  int workers() const {
    return placed ? static_cast<int>(placed->workers.size()) * pipelines : device_count(partition);
  }
  /// What they do share: nothing without replicas.
  Shard shared() const;
  std::int64_t peak() const;
  /// Whether a synchronous plan holds more micro-batches somewhere than the windows of `win`, which the planner
  /// chose for it.
  bool holds_more() const;
  /// The step time to 36 bits, so that equal plans tie whatever the order of their sums.
  double rounded_step() const;
  /// By which plans are ranked: 1 % more for one that holds_more().
  double ranked_step() const;
};

/// The order of the alternatives, the plan first: step time, then devices, stages and peak bytes, then schedule
/// and stages in byte order.
bool ranks_before(const Finalist& a, const Finalist& b);

/// Whether the request leaves its windows to the planner.
bool has_free_windows(const Finalist& finalist, const PlanRequest& request);

/// Stages, workers and programs of a finalist whose schedule does not place its stages.
Assignment assign(const Finalist& finalist, const PlanGraph& graph, const PlanRequest& request);
/// Whether streams repeat too late for check_plan(), by the function that it asks (schedule/queues.h).
bool is_endless(const Assignment& assignment);
/// Whether frames that move on by one stage per step (RuleSet::clocked) would miss a reader: no stage may read
/// from one before the last.
bool skips_readers(const Finalist& finalist, const PlanGraph& graph);
/// Bytes that each worker of a finalist may use; of hardware that several share, its part.
std::vector<Bytes> worker_limits(const Finalist& finalist, const Cluster& cluster, const PlanRequest& request);
/// What the simulated peaks of the workers of one device lack on it, of the worst; not above 0: all fit.
Bytes simulated_shortage(const Finalist& finalist, const Cluster& cluster, const PlanRequest& request);

/// `7|5` and `1-1` of a partition.
std::string stages_text(const Partition& partition);
std::string replicas_text(const Partition& partition);
/// Each stage's layers, in file order.
std::vector<std::vector<int>> stage_layers(const Partition& partition, const std::vector<int>& order);

}  // namespace pp::plan
