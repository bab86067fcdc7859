// What a user asks of the planner, and how much work the searches may take on. Every field that is left as it
// is leaves the choice to the search.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "libplan/cost/recompute.h"
#include "libplan/plan/plan.h"
#include "libplan/request/placement.h"
#include "libprofile/core/enum_names.h"

namespace pp::plan {

/// Weights that several layers share: all of these in one stage, or, where that is faster, a copy in each of
/// their stages whose gradients are added up at the end of the step.
/// `automatic`: in one stage, unless the model could then not be cut into as many stages as asked for, or at
/// all.
enum class TiedWeights { automatic, stage, copies };

/// Whether the replicas of a stage share the optimizer's state (Shard::optimizer); `automatic`: where that is
/// no slower, or nothing fits otherwise.
enum class ShardChoice { none, optimizer, automatic };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::TiedWeights> {
  static constexpr std::array table{std::pair{plan::TiedWeights::automatic, "auto"sv},
                                    std::pair{plan::TiedWeights::stage, "stage"sv},
                                    std::pair{plan::TiedWeights::copies, "copies"sv}};
};
template <>
struct EnumNames<plan::ShardChoice> {
  static constexpr std::array table{std::pair{plan::ShardChoice::none, "none"sv},
                                    std::pair{plan::ShardChoice::optimizer, "optimizer"sv},
                                    std::pair{plan::ShardChoice::automatic, "auto"sv}};
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
  /// Only between blocks: layers whose names agree so far stand in one stage (shapes.h). Unset: between any.
  struct CutAt {
    int depth = 0;  ///< parts of the name; 0: up to its first number
  };
  std::optional<CutAt> cut_at;
  /// Every layer once, in a topological order: the only one that is searched, and in which cuts count. Empty:
  /// free.
  std::vector<int> layer_order;
  /// In which order stages go through the devices of a cluster with several levels or unequal devices.
  Placement placement = Placement::automatic;
  /// Most replicas of any stage; 0: free.
  int max_replicas = 0;
  /// Replicas per stage, first stage first; empty: free.
  std::vector<int> replicas;
  /// Only numbers of replicas that divide the micro-batches, of schedules with equal replicas; and
  /// micro-batches of one size.
  bool even_replicas = false;
  /// Only plans that use equally many devices of each node that they use, which is how a launcher starts
  /// processes, and none of several stages on the only worker of a pipeline. Of schedules that place their
  /// stages, or with equal replicas.
  bool even_nodes = false;
  /// The trainer for which the request was narrowed, which the plan says in its context; empty: none.
  std::string trainer;

  /// Shared weights in one stage, or copies in several, which train to the same bits. Copies want a flush; with
  /// replicas they are equal to rounding.
  TiedWeights tied = TiedWeights::automatic;

  /// Usable bytes per device, taken as given. Unset: (1 - reserve) of what the device has.
  std::optional<Bytes> memory_limit;
  /// Share of a device's memory that is left free for fragmentation. Ignored with `memory_limit`.
  double reserve = 0.05;
  /// Bytes of a process that computes nothing yet; counted once per device.
  Bytes context_bytes{0};
  /// Forwards that run again to save memory. automatic: where a stage has no room otherwise, if that wins.
  RecomputeMode recompute = RecomputeMode::never;
  /// What `automatic` may choose.
  RecomputeExtent recompute_extent = RecomputeExtent::any;
  OptimizerName optimizer = OptimizerName::sgd;
  Precision precision = Precision::plain;
  ShardChoice shard = ShardChoice::none;
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

/// Whether searches, whose time grows with the layers and the square of the devices, are short enough to be
/// repeated on every smaller machine.
constexpr bool is_small(int layers, int devices) { return std::int64_t{layers} * devices * devices <= 16'384; }

/// Whether they would take too long over stages with any replicas: pipelines of equal ones are searched.
constexpr bool is_large(int layers, int devices) {
  return std::int64_t{layers} * devices * devices > 16'000'000;
}

/// On machines that are not small, searches and simulations that take long are for what comes this near to the
/// best so far.
constexpr double kNear = 1.05;

/// For plans whose schedule places the stages: operations that are simulated in all where a machine is_large().
constexpr std::int64_t kPlacedOperationsLarge = 1'000'000;

/// Under a memory limit each search may take one with the exact memory: layers times devices of all that are
/// repeated.
constexpr int kLimitedWork = 4000;

}  // namespace pp::plan
