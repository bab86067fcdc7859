// The planner: profile, cluster and request in; a plan, or that none fits, out. Searches every layer order,
// micro-batch size and schedule the request allows and prices the finalists with the simulator (README.md of
// libplan explains how).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "libplan/cost/recompute.h"
#include "libplan/plan.h"
#include "libplan/search/candidates/device_orders.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// Weights that several layers share: all of these in one stage, or, where that is faster, a copy in each of
/// their stages whose gradients are added up at the end of the step.
enum class TiedWeights { stage, copies };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::TiedWeights> {
  static constexpr std::array table{std::pair{plan::TiedWeights::stage, "stage"sv},
                                    std::pair{plan::TiedWeights::copies, "copies"sv}};
};
}  // namespace pp

namespace pp::plan {

/// How far a search is.
struct SearchProgress {
  int devices = 0;              ///< of the part of the machine that is searched
  std::optional<Seconds> best;  ///< step of the best plan so far
};

struct PlanRequest {
  /// Samples per optimizer update; 0 (not given) is refused.
  int mini_batch = 0;
  /// Micro-batches per update; unset: every profiled size that divides the mini-batch is tried.
  std::optional<int> micro_batches;
  /// Samples per micro-batch; must divide the mini-batch. At most one of the two may be set.
  std::optional<int> micro_batch_size;

  /// `auto` (the best candidate of schedule_table()), or names of it, separated by commas: the best of them.
  std::string schedule = "auto";
  /// `auto`: asynchronous schedules compete too, by their time per mini-batch.
  bool allow_async = false;
  /// Unset: the schedule's own. `auto`: only schedules that have it.
  std::optional<WeightPolicy> weight_policy;
  /// Micro-batches in flight per replica, for 1F1B kinds. Unset: `win`, and where that is faster and fits,
  /// more. `windows`: with explicit_list, one per stage.
  std::optional<WindowRule> window;
  std::vector<int> windows;

  /// Stages per worker, for the schedules with several; 0: the schedule's own. --stages counts workers there.
  int chunks_per_worker = 0;
  /// Schedule `custom`: the programs, which fix placement, stages and micro-batches.
  std::optional<ProgramSet> programs;

  /// Exact number of stages; unset: any up to `max_stages` (unset: no bound).
  std::optional<int> stages;
  std::optional<int> max_stages;
  /// Boundaries in the file order of the layers: `3,5` starts stages at layers 0, 3 and 5.
  std::vector<int> cuts;
  /// Every layer once, in a topological order: the only one that is searched, and in which cuts count. Empty:
  /// free.
  std::vector<int> layer_order;
  /// In which order stages go through the devices of a cluster with several levels or unequal devices.
  Placement placement = Placement::automatic;
  /// Most replicas of any stage; 0: free.
  int max_replicas = 0;
  /// Replicas per stage, first stage first; empty: free.
  std::vector<int> replicas;

  /// Shared weights in one stage, or copies in several, which train to the same bits. Copies want a flush; with
  /// replicas they are equal to rounding.
  TiedWeights tied = TiedWeights::stage;

  /// Usable bytes per device, taken as given. Unset: (1 - reserve) of what the device has.
  std::optional<Bytes> memory_limit;
  /// Share of a device's memory that is left free for fragmentation. Ignored with `memory_limit`.
  double reserve = 0.05;
  /// Bytes of a process that computes nothing yet; counted once per device.
  Bytes context_bytes{0};
  /// Forwards that run again to save memory. automatic: where a stage has no room otherwise, if that wins.
  RecomputeMode recompute = RecomputeMode::never;
  OptimizerName optimizer = OptimizerName::sgd;
  /// Bytes of optimizer state per byte of parameters; unset: the profile's, else state_ratio_of().
  std::optional<double> optimizer_state_ratio;
  /// Share of the last backward that hides the all-reduce. Unset: what was measured of the cluster's outermost
  /// level, else 0: the runtime reduces after it.
  std::optional<double> all_reduce_overlap;

  /// Between the host and the device of each worker, for schedules whose weights live on the host; they are
  /// refused without.
  std::optional<BytesPerSecond> swap_bandwidth;
  /// Share of swapped weights that operations hide. Unset: all on GPUs, which have engines that copy; nothing
  /// on CPUs, whose cores do.
  std::optional<double> swap_overlap;

  /// That simulate finalists at the same time; the plan does not depend on it.
  int threads = 1;
  /// Alternatives listed beside the chosen plan.
  int top = 5;
  /// Micro-batch sizes outside the profiled range: continue the nearest segment.
  bool extrapolate = false;
  /// A profile with one micro-batch size: scale it linearly.
  bool linear_batch = false;
  /// Accept times and bandwidths that look like another unit.
  bool force_units = false;

  /// Asked now and then, by the thread that plans, whether to go on. After the first `false` the search ends
  /// with the best plan so far, and its certificate says so.
  std::function<bool(const SearchProgress&)> observer;
};

/// Whether the observer, if there is one, lets the search go on.
bool goes_on(const PlanRequest& request, const SearchProgress& progress);

/// No plan keeps to the limits of the request.
struct NoPlan {
  std::optional<Bytes> short_by;    ///< of schedules that place their stages: what the best attempt lacks
  std::string_view short_schedule;  ///< that of the best attempt
};

/// Seconds to plan are small: O(orders * sizes * schedules * layers * devices^2). Same input, same plan, bit
/// for bit. Throws pp::Error: usage for a request that contradicts itself, the profile or the cluster (`stages
/// = 9 exceeds the number of layers, 6`), data for a profile or cluster that cannot be used; run when the
/// observer stops it before any plan is found.
std::variant<Plan, NoPlan> find_plan(const Profile& profile, const Cluster& cluster,
                                     const PlanRequest& request);

/// The best plan, and its alternatives as plans of their own: in their order, without certificate and
/// alternatives.
struct RankedPlans {
  Plan best;
  std::vector<Plan> others;
};
/// Whether the alternatives are only listed in the plan.
enum class Others { listed, in_full };
/// find_plan() with the alternatives in full.
std::variant<RankedPlans, NoPlan> find_plans(const Profile& profile, const Cluster& cluster,
                                             const PlanRequest& request, Others others = Others::in_full);

/// Throws pp::Error (run): the observer stopped the search before it found a plan.
[[noreturn]] void refuse_unfinished();

/// The devices and links a plan was made for.
Cluster cluster_of(const Plan& plan);

/// What `plan` costs on `cluster`, by the simulator: also for plans written or edited by hand. Devices are
/// found by id. Throws pp::Error (data) when a layer, a device or a micro-batch size is missing.
Prediction predict(const Plan& plan, const Profile& profile, const Cluster& cluster,
                   const PlanRequest& options = {});

/// The simulator's input for `plan` with the costs it carries (plan.predicted.stages): what `pp-plan simulate`
/// draws. Streams are expanded to `updates` optimizer updates. Throws pp::Error (data) when the plan carries no
/// costs.
SimulationInput simulation_input(const Plan& plan, int updates = 1);
/// Updates of an asynchronous plan that are long enough for steady_period().
int steady_updates(const Plan& plan);

}  // namespace pp::plan
