// Memory of one device of a stage, as a bound for the fast searches and exactly for a whole partition.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/micro_batches.h"
#include "libplan/cost/recompute.h"
#include "libplan/cost/stage_bytes.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/schedule/schedule.h"

namespace pp::plan {

/// How many micro-batches a replica keeps in flight, and with how many weight versions.
struct InFlight {
  bool all = false;         ///< every micro-batch of the step (gpipe); otherwise by `rule`
  bool last_first = false;  ///< with `all`: backwards run from the last one to the first
  WindowRule rule = WindowRule::win;
  std::vector<int> windows = {};                   ///< rule = explicit_list: per stage
  WeightPolicy policy = WeightPolicy::flush;       ///< how many weight versions a stage keeps
  int stages = 0;                                  ///< vertical_sync, predict: of the pipeline, at most
  int micro_batches = 0;                           ///< per step, or clock step; 0: a stream without end
  MicroBatches batch = {};                         ///< per step or update, where they differ in size
  int per_update = 1;                              ///< predict: micro-batches
  RecomputeMode recompute = RecomputeMode::never;  ///< what a stage may run again instead of keeping it
  bool sharded = false;                            ///< the optimizer's state, over a stage's replicas
  int pipelines = 1;                               ///< side by side: replicas that no search counts
  /// With `automatic`: what layers release; must outlive the memory. Null, for chains whose positions are not
  /// layers: everything (a bound).
  const ChainUnits* units = nullptr;
  bool operator==(const InFlight&) const = default;
};

/// Fixed costs of every device and what it may hold.
struct MemoryLimit {
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();  ///< usable, after reserve
  std::int64_t context = 0;
  HandOver in = HandOver::copy, out = HandOver::copy;  ///< from the stages in front, to those behind
  auto operator<=>(const MemoryLimit&) const = default;
};

/// Whether anything can be too large.
bool is_limited(const MemoryLimit& limit);

/// The chain must outlive it.
class StageMemory {
 public:
  StageMemory(const Chain& chain, InFlight in_flight, MemoryLimit limit);

  /// Lower bound: the in-flight window that `later` devices force at least, no boundary tensors. Grows with the
  /// stage.
  bool fits_at_least(int begin, int end, int replicas, int later) const;

  /// What a stage with `replicas` wants in flight, over all of them (ExactMemory).
  int demand(int replicas, const Behind& behind) const;
  /// Remembered, as no window larger than one that is too wide fits. Not thread-safe.
  bool fits(const StageRange& stage, int demand) const;

  /// Micro-batches in flight that `later` devices force at least.
  int least_window(int replicas, int later) const;
  /// What `window` micro-batches in flight hold at most, in micro-batches of the largest size.
  double held(int replicas, int window) const;
  /// Bytes by which the stage exceeds the limit at least when nothing runs again, without workspace; negative:
  /// they are left. Grows with the stage by no less than `window` times what its new layers save.
  std::int64_t least_excess(const StageRange& stage, int window) const;

  /// Exact, per stage. Under `automatic` a stage without room is as small as it can be: as a whole again, or
  /// the layers that release most.
  std::vector<StageBytes> stages(const Partition& partition) const;
  bool fits(const Partition& partition) const;
  /// Bytes of its largest stage, context included.
  std::int64_t peak(const Partition& partition) const;
  /// The same chain and windows on devices with `bytes`.
  StageMemory with_limit(std::int64_t bytes) const;
  /// Whether a device holds this, besides its context.
  bool holds(const StageBytes& part) const { return part.total() + limit_.context <= limit_.bytes; }
  const MemoryLimit& limit() const { return limit_; }
  bool limited() const { return is_limited(limit_); }
  const InFlight& in_flight() const { return in_flight_; }

 private:
  /// What is known of the windows of a stage that ends at `end`.
  struct Windows {
    int end = 0;
    int replicas = 0;
    int fitting = 0;
    int too_wide = std::numeric_limits<int>::max();
  };

  int window(const StageRange& stage, int demand) const;
  bool fits_window(const StageRange& stage, int window) const;
  StageContents contents(const StageRange& stage) const;
  /// The same without what it exchanges and its transient memory: no more than the stage holds, and sooner
  /// known.
  StageContents least_contents(const StageRange& stage) const;
  StageKeeping keeping(int replicas, int window, bool runs_again) const;
  /// Of the smaller size, among `window` that follow each other on a replica: the fewest.
  int smaller_of(int replicas, int window) const;
  /// Of what is held when a micro-batch of the largest size runs back while all others are held, what is held
  /// at the real peak.
  StageBytes at_peak(StageBytes part) const;
  /// With what it runs again.
  StageBytes bytes(const StageRange& stage, int window) const;
  StageBytes bytes_again(const StageRange& stage, int window) const;
  StageBytes bytes_of_layers_again(const StageRange& stage, StageBytes part) const;
  int micro_batches_of(int replicas) const;

  const Chain& chain_;
  InFlight in_flight_;
  MemoryLimit limit_;
  mutable std::vector<std::vector<Windows>>
      known_;  ///< by begin, then end and replicas modulo the row: the latest one asked
  mutable std::map<std::pair<int, int>, int> smaller_;  ///< smaller_of() of streams
};

}  // namespace pp::plan
