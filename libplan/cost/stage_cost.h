// What the searches ask of a cost model, and the partition they hand back. A stage [begin, end) holds the
// layers between two boundaries of one linear order; boundary k (1..N-1) is the cut between layers k-1 and k.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <functional>
#include <vector>

#include "libprofile/core/index.h"

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

}  // namespace pp::plan
