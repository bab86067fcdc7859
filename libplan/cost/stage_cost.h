// What the searches ask of a cost model, the partition they hand back, and how long a stage keeps its devices
// busy, with the share of its all-reduce that overlaps the backward in front of it. A stage [begin, end) holds
// the layers between two boundaries of one linear order; boundary k (1..N-1) is the cut between layers k-1
// and k.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "libplan/cost/chain.h"
#include "libprofile/core/index.h"
#include "libprofile/core/units.h"

namespace pp::plan {

enum class CutSide {
  in,
  out
};  ///< the stage right of the boundary, which receives activations; the one left of it

/// Consecutive devices that run a stage, counted from the back: position 0 serves the last layers, so `first`
/// devices run the stages behind it. Where all devices are alike it says no more than that.
struct DeviceSpan {
  int first = 0;
  int count = 1;
  int end() const { return first + count; }
};

/// The objective of a search: the largest load of a stage or cut, and what is added up over a partition beyond
/// base(). Times in seconds, bytes tested against the devices. Tests fake it with a table. Required of `stage`:
/// it does not fall when the stage grows on either side, except where may_fall(). Required of `fits`: a
/// stage that does not fit still does not when it grows or when more devices stand behind it.
class StageCost {
 public:
  virtual ~StageCost() = default;
  /// Load of the stage [begin, end) on the devices of `span`.
  virtual double stage(int begin, int end, DeviceSpan span) const = 0;
  /// Load of boundary `boundary` on a stage at that side of it. Not called for 0 and N.
  virtual double cut(int boundary, DeviceSpan span, CutSide side) const = 0;
  /// Whether the stage may fit each of its devices: a bound, that no stage which fits fails.
  virtual bool fits(int begin, int end, DeviceSpan span) const = 0;

  /// Whether all devices are alike: then only `fits` looks at span.first, and passage() is 0.
  virtual bool uniform() const { return true; }
  /// Whether stages on `span` are searched at all.
  virtual bool considers(DeviceSpan) const { return true; }
  /// Whether stages with `replicas` replicas are no better off than with one less, in load, memory and all
  /// else.
  virtual bool is_dominated(int /*replicas*/) const { return false; }
  /// Whether `stage` may fall when a stage with `replicas` replicas grows: then every end is looked at.
  virtual bool may_fall(int /*replicas*/) const { return false; }

  /// The part of the sum that no partition undercuts.
  virtual double base() const { return 0; }
  /// Beyond it: what layers [0, boundary) take longer on `span` than on the fastest device, and what a stage on
  /// `span` adds by the boundary behind it (not called for N). Zero where only the largest load counts.
  virtual double passage(int, DeviceSpan) const { return 0; }
  virtual double fill(int, DeviceSpan) const { return 0; }
};

/// may_fall() of every number of replicas up to `devices`.
std::vector<char> falling(const StageCost& cost, int devices);

struct StageRange {
  int begin = 0;
  int end = 0;
  int replicas = 1;
  bool operator==(const StageRange&) const = default;
  auto operator<=>(const StageRange&) const = default;
};

/// Stages from first to last; together they hold every layer.
using Partition = std::vector<StageRange>;

int device_count(const Partition& partition);
std::vector<int> replicas_of(const Partition& partition);
/// The inner boundaries, ascending.
std::vector<int> cuts_of(const Partition& partition);
/// The devices of each stage: the last stage begins at position 0.
std::vector<DeviceSpan> spans_of(const Partition& partition);

/// The largest load of a stage or cut.
double largest_load(const Partition& partition, int layers, const StageCost& cost);
/// Passages and fills, added up from the back.
double sum_of(const Partition& partition, int layers, const StageCost& cost);
/// What a search minimises: load, base and sum.
double objective_of(const Partition& partition, int layers, const StageCost& cost);

/// What stands behind a stage. `demand` is what the next one wants in flight in front of it, over its replicas;
/// 0 behind the last stage.
struct Behind {
  int devices = 0;
  int stages = 0;
  int demand = 0;
};

/// Memory that knows the in-flight window of a stage, which follows from all stages behind it.
class ExactMemory {
 public:
  virtual ~ExactMemory() = default;
  /// Of a stage on `span`. Never falls when devices or demand behind it grow.
  virtual int demand(DeviceSpan span, const Behind& behind) const = 0;
  /// `demand` is the stage's own.
  virtual bool fits(const StageRange& stage, DeviceSpan span, int demand) const = 0;
  /// Every stage of a whole partition with its own window.
  virtual bool fits(const Partition& partition) const = 0;
};

struct SearchSpace;

/// The numbers of replicas that a search of `space` looks at, ascending.
class ReplicaCounts {
 public:
  ReplicaCounts(const SearchSpace& space, const StageCost& cost);
  int size() const { return static_cast<int>(counts_.size()); }
  int operator[](int i) const { return counts_[at(i)]; }
  /// The place of one of them.
  int place(int count) const { return places_[at(count)]; }
  /// All of them are multiples of it.
  int unit() const { return unit_; }

 private:
  std::vector<int> counts_;
  std::vector<int> places_;
  int unit_ = 1;
};

/// Thrown out of a search by StopSign::look().
struct SearchStopped {};

/// Ends a long search from within; changes no result, so all are equal.
struct StopSign {
  std::function<bool()> goes_on;  ///< asked now and then; empty: to the end

  void look() const {
    if (goes_on && !goes_on()) throw SearchStopped();
  }
  bool operator==(const StopSign&) const { return true; }
};

/// What a partition may look like; shared by all searches.
struct SearchSpace {
  int layers = 0;
  int devices = 0;
  int min_replicas = 1;             ///< of every stage
  int max_replicas = 0;             ///< of one stage; 0: all devices
  std::vector<char> cut_allowed{};  ///< per boundary 0..N; empty: everywhere
  int exact_stages = 0;             ///< 0: free
  int max_stages = 0;               ///< 0: free; ignored with exact_stages
  std::vector<int> replicas{};      ///< per stage, with exact_stages; empty: free
  bool aligned = false;             ///< every stage on whole groups of the cluster, or on an equal share of one
  StopSign stop{};                  ///< of the searches that take longest

  bool may_cut(int boundary) const { return cut_allowed.empty() || cut_allowed[at(boundary)] != 0; }
  int replica_limit() const { return max_replicas == 0 ? devices : std::min(max_replicas, devices); }
  /// Stage counts told apart by the searches; 0: none.
  int levels() const { return exact_stages != 0 ? exact_stages : max_stages; }
  /// Whether the stage that is `level`-th from the back (1 = last) may have `count` replicas.
  bool may_replicate(int level, int count) const {
    if (count < min_replicas) return false;
    return replicas.empty() || replicas[replicas.size() - at(level)] == count;
  }
  bool operator==(const SearchSpace&) const = default;
};

enum class LoadKind {
  step,        ///< synchronous: the steady part of a step; the sum of a partition is the way of one micro-batch
  steady,      ///< synchronous: all of a stage's work and messages in a step, which chained steps repeat
  step_bound,  ///< certificate of the steady step: fill and drain around the stage, or its own work and update
  period,      ///< asynchronous: seconds per update in steady state
  period_bound,  ///< the same with the tensors that every stage must exchange whatever the others are
};

/// What a stage does. Seconds of one micro-batch on the device that the profile is of, if nothing else is said;
/// without the fixed costs of an operation.
struct LoadTerms {
  double forward = 0, backward = 0;
  /// The part of the backward in `step_bound` that the stages in front wait for; forward and that part of this
  /// stage and all in front, as far as gradients return (Chain::returned); the same of the whole model.
  double awaited = 0, reach = 0, whole = 0;
  double update = 0;       ///< per step, fixed costs included
  double all_reduce = 0;   ///< per step, on the devices that the stage has
  double again = 0;        ///< per step or update: what runs a second time to save memory
  double again_later = 0;  ///< the part of it behind the first micro-batch's, which may run before its backward
  OperationCost fixed{};
  OperationCost messages{};  ///< what these keep the stage's devices from their work, whatever their speed
  double slowness = 1;       ///< of the stage's devices: times as long as on the profile's
  double turns = 1;          ///< micro-batches per step or update of its busiest replica
  int replicas = 1;
};

/// Seconds per step or update; with n turns on q replicas, F, B and U at the speed of the devices, messages
/// included, overlap o,
///
///   steady = max(n (F + B), n F + (n - o) B + AR) + again + U       step: the same with n - 1 in the maximum
///   period = steady M / (n q)
///   step_bound = max(steady, R + (n - 1)(F + B') + again, W + (n - 1) F, W + (n - 1) B' + again_later)
///
/// with B' the awaited backward, R and W the way of one micro-batch through all layers up to the stage's last
/// one, and through the whole model, at full speed. The last two: the stage's first backward follows a forward
/// through all stages and the backwards of those behind it, its last one is followed by those in front; its
/// last forward likewise. So the same work costs less in front, where forwards run while the pipeline fills.
///
/// Each load is monotone: adding a layer to a stage never lowers it, in floating point either. The exception is
/// `step` with n = 1, where a longer backward hides more of the all-reduce. The asynchronous form is
/// PipeDream's (SOSP'19, 3.1) for n micro-batches per update.
inline double stage_load(LoadKind kind, const LoadTerms& stage, double micro_batches,
                         double all_reduce_overlap) {
  const double f = (stage.forward + stage.fixed.forward) * stage.slowness + stage.messages.forward;
  const double b = (stage.backward + stage.fixed.backward) * stage.slowness + stage.messages.backward;
  const double again = stage.again * stage.slowness;
  const double n = kind == LoadKind::step ? stage.turns - 1 : stage.turns;
  const double load = std::max(n * (f + b), n * f + (n - all_reduce_overlap) * b + stage.all_reduce) + again +
                      stage.update * stage.slowness;
  switch (kind) {
    case LoadKind::step:
    case LoadKind::steady: return load;
    case LoadKind::period:
    case LoadKind::period_bound: return load * micro_batches / (n * stage.replicas);
    case LoadKind::step_bound: break;
  }
  const double turns = n * stage.slowness;
  const double forwards = turns * stage.fixed.forward + n * stage.messages.forward;
  const double backwards = turns * stage.fixed.backward + n * stage.messages.backward;
  const double around =
      stage.reach + (turns - 1) * (stage.forward + stage.awaited) + (forwards + backwards + again);
  const double through =
      stage.whole + std::max((turns - 1) * stage.forward + forwards,
                             (turns - 1) * stage.awaited + backwards + stage.again_later * stage.slowness);
  return std::max({load, around, through});
}

/// pp-run begins the sum of whole layers of at least this many bytes of gradients as soon as they are complete.
inline constexpr Bytes kBucket(1 << 20);

struct LayerGradient {
  double backward = 0;     ///< seconds
  std::int64_t bytes = 0;  ///< of its weights
};

/// Those of the `all_reduce` seconds for all these gradients that are over when the backward is, if nothing
/// hinders them: AR - (max_k (e_k + sum of ar_i for i >= k) - B) with buckets in the order of the backward,
/// complete at e_k and AR's share of bytes long. `layers` in the order of the model. At most B, and AR.
/// O(layers).
double hideable(std::span<const LayerGradient> layers, double all_reduce);

}  // namespace pp::plan
