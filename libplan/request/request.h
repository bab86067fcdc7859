// What a request asks for, checked against profile and cluster and spelled out: which schedules, which
// micro-batches, which devices, which stages; and its options as entries of a plan's context, for readers and
// for the next plan of a training.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/cost/stage_memory.h"
#include "libplan/plan/plan.h"
#include "libplan/request/plan_request.h"
#include "libprofile/core/units.h"

namespace pp::plan {

/// One way to cut the mini-batch.
struct BatchOption {
  int micro_batches = 1;
  std::vector<int> sizes;  ///< samples of each
};

/// Of devices that are one piece of hardware: each may use all of its memory, which the simulated peaks of its
/// workers have to keep to together; or each its part, which they keep to one by one.
enum class SharedMemory { whole, parts };

/// Equal enough devices to be searched as one kind: all at least this fast, with at least this much memory.
struct DeviceSet {
  std::vector<int> positions;  ///< in the cluster, as the request places workers on them
  SharedMemory shared = SharedMemory::whole;
  int sharers = 1;        ///< most of them that are one piece of hardware
  double speed = 1;       ///< of the slowest
  double best_speed = 1;  ///< of the fastest
  /// By kind of device (Device::profile): how many times as long as the least of all of the set a device of
  /// speed 1 takes for anything, at least; of one kind `best_speed`. Set where the set is priced.
  std::vector<double> slowness = {};
  MemoryLimit limit;  ///< of the smallest, or of its part

  /// What fits it may not fit the cluster.
  bool is_relaxed() const { return shared == SharedMemory::whole && sharers > 1; }
};

/// What the request says, or else the cluster.
double all_reduce_overlap(const Cluster& cluster, const PlanRequest& request);

/// Of a schedule with these rules; nothing where weights stay on their devices.
SwapLink swap_link(RuleSet rules, const Cluster& cluster, const PlanRequest& request);

/// The layers, those of shared weights together unless the request lets stages hold copies.
PlanGraph planned_graph(const Profile& profile, const PlanRequest& request);

/// Stages that the groups of the graph leave possible, in file order.
int most_stages(const PlanGraph& graph);

/// `automatic` as what it means for this model, cluster and schedules.
PlanRequest with_tied_weights(const Profile& profile, const Cluster& cluster, PlanRequest request);

/// Throws pp::Error (usage) for everything that no search could answer: contradictions, counts out of range,
/// another device kind, figures that look like another unit.
void check_request(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                   const PlanRequest& request);

/// What replicas may share under this schedule: the request's choice, or both where it leaves it open. Streams,
/// and weights that live elsewhere, share nothing.
std::vector<Shard> shards_of(const ScheduleRow& schedule, const PlanRequest& request);
bool may_shard(const ScheduleRow& schedule);

/// Whether the schedule says itself which worker holds which stage.
bool places_stages(const ScheduleRow& schedule);
/// Whether one that does has these replicas of its workers: the same number everywhere; empty: free.
bool has_copies(const ScheduleRow& schedule, std::span<const int> replicas);

/// Whether stages under this schedule may hold copies of weights that layers of other stages use, too.
bool may_copy_tied(const ScheduleRow& schedule);

/// Whether the planner chooses among several schedules: those that refuse the rest of the request are left out.
bool chooses_schedule(const PlanRequest& request);

/// The rows that the request names; `auto`: every candidate that goes with its weight policy, chunks per
/// worker, stages and replicas. Throws pp::Error (usage) for an unknown name.
std::vector<const ScheduleRow*> requested_schedules(const PlanRequest& request);

/// Whether the profile knows the times of input and weight gradients apart.
bool knows_split(const Profile& profile);

/// The requested ones that are planned for this profile: `auto` leaves out those that split the backward where
/// the profile only estimates its parts.
std::vector<const ScheduleRow*> planned_schedules(const Profile& profile, const PlanRequest& request);

/// Micro-batch counts to try for this schedule, more samples per micro-batch first. Throws pp::Error (usage)
/// when no profiled size divides the mini-batch, and names sizes that would.
std::vector<BatchOption> batch_options(const Profile& profile, const PlanRequest& request,
                                       const ScheduleRow& schedule);

/// `rates`: kind_rates(). One set for each distinct speed and memory size of the cluster, all devices in the
/// first; then the devices that hand over by reference, and where several are one piece of hardware one of each
/// and all once more with parts of its memory. Sets that hold the same devices appear once. A stage is searched
/// as if on the slowest device of its set and priced on its own.
std::vector<DeviceSet> device_sets(const Cluster& cluster, const PlanRequest& request,
                                   std::span<const double> rates);

/// Boundaries, stage counts and replicas that the request and the tied weights allow; `order` is the layer at
/// each position. `most_replicas` is the number of micro-batches of a synchronous step.
SearchSpace search_space(const PlanGraph& graph, const std::vector<int>& order, const PlanRequest& request,
                         int devices, int most_replicas);

/// The rule that the searches take: `win` where it is left open.
WindowRule window_of(const PlanRequest& request);
InFlight in_flight_of(const ScheduleRow& schedule, const PlanRequest& request, int micro_batches);
/// Bytes that a plan may use on the device, without context_bytes taken off.
std::int64_t usable_bytes(const Device& device, const PlanRequest& request);
/// The same of every device of the cluster.
std::vector<std::int64_t> usable_bytes(const Cluster& cluster, const PlanRequest& request, SharedMemory shared);
WeightPolicy policy_of(const ScheduleRow& schedule, const PlanRequest& request);

/// What --cuts asks for in stages, or --stages, --replicas or --window; 0: free. Of schedules with several
/// stages per worker --stages and --replicas count workers.
int requested_stages(const PlanRequest& request);

/// Adds every option that shapes plans, but for those that a plan says elsewhere: mini-batch, optimizer,
/// precision, weight policy and programs. Options that are as they were leave no entry, but for schedule,
/// micro-batches and window, which say `auto`.
void add_options(Context& context, const PlanRequest& request);

/// Sets what the context says of options that hold for any number of devices: no stages, cuts, replicas, nor
/// windows by stage. Throws pp::Error (data) that names an entry which says no value of its option.
void read_options(PlanRequest& request, const Context& context);

}  // namespace pp::plan
