// What the searches ask of a cost model, and the partition they hand back. A stage [begin, end) holds the
// layers between two boundaries of one linear order; boundary k (1..N-1) is the cut between layers k-1 and k.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <functional>
#include <vector>

namespace pp::plan {

enum class CutSide {
  in,
  out
};  ///< the stage right of the boundary, which receives activations; the one left of it

/// Times in seconds, bytes tested against the device. All replicas counts are at least 1. Tests fake it with a
/// table. Required of `stage`: it does not fall when the stage grows on either side, except for `scan_replicas`
/// of the search. Required of `fits`: a stage that does not fit still does not when it grows or when `later`
/// grows.
class StageCost {
 public:
  virtual ~StageCost() = default;
  /// Load of the stage [begin, end) on `replicas` devices.
  virtual double stage(int begin, int end, int replicas) const = 0;
  /// Load of boundary `boundary` on a stage with `replicas` devices at that side of it. Not called for 0 and N.
  virtual double cut(int boundary, int replicas, CutSide side) const = 0;
  /// Whether the stage fits each of its devices when `later` devices run the stages behind it.
  virtual bool fits(int begin, int end, int replicas, int later) const = 0;
};

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

/// What stands behind a stage. `demand` is what the next one wants in flight in front of it, over its replicas;
/// 0 behind the last stage.
struct Behind {
  int devices = 0;
  int stages = 0;
  int demand = 0;
};

/// Memory that knows the in-flight window of a stage, which follows from the stages behind it.
class ExactMemory {
 public:
  virtual ~ExactMemory() = default;
  /// Demand of a stage with `replicas`. Never falls when devices or demand behind it grow.
  virtual int demand(int replicas, const Behind& behind) const = 0;
  /// `demand` is the stage's own.
  virtual bool fits(const StageRange& stage, int demand) const = 0;
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
  int min_replicas = 1;           ///< of every stage
  int max_replicas = 0;           ///< of one stage; 0: all devices
  std::vector<char> cut_allowed;  ///< per boundary 0..N; empty: everywhere
  int exact_stages = 0;           ///< 0: free
  int max_stages = 0;             ///< 0: free; ignored with exact_stages
  std::vector<int> replicas;      ///< per stage, with exact_stages; empty: free
  int scan_replicas = 0;          ///< the one replica count for which `stage` is not monotone; 0: none
  StopSign stop{};                ///< of the searches that take longest

  bool may_cut(int boundary) const {
    return cut_allowed.empty() || cut_allowed[static_cast<std::size_t>(boundary)] != 0;
  }
  int replica_limit() const { return max_replicas == 0 ? devices : std::min(max_replicas, devices); }
  /// Stage counts told apart by the searches; 0: none.
  int levels() const { return exact_stages != 0 ? exact_stages : max_stages; }
  /// Whether the stage that is `level`-th from the back (1 = last) may have `count` replicas.
  bool may_replicate(int level, int count) const {
    if (count < min_replicas) return false;
    return replicas.empty() || replicas[replicas.size() - static_cast<std::size_t>(level)] == count;
  }
  bool operator==(const SearchSpace&) const = default;
};

}  // namespace pp::plan
