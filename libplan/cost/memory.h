// Memory of one device of a stage, as a bound for the fast searches and exactly for a whole partition.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/recompute.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// How many micro-batches a replica keeps in flight, and with how many weight versions.
struct InFlight {
  bool all = false;  ///< every micro-batch of the step (gpipe); otherwise by `rule`
  WindowRule rule = WindowRule::win;
  std::vector<int> windows = {};                   ///< rule = explicit_list: per stage
  WeightPolicy policy = WeightPolicy::flush;       ///< how many weight versions a stage keeps
  int stages = 0;                                  ///< vertical_sync, predict: of the pipeline, at most
  int micro_batches = 0;                           ///< per step; 0: a stream without end
  int per_update = 1;                              ///< predict: micro-batches
  RecomputeMode recompute = RecomputeMode::never;  ///< what a stage may run again instead of keeping it
  /// With `automatic`: what layers release; must outlive the memory. Null, for chains whose positions are not
  /// layers: everything (a bound).
  const ChainUnits* units = nullptr;
};

/// Whether both are one piece of hardware, whose memory they share: entries of one kind, node and index.
bool share_memory(const Device& a, const Device& b);

/// How a tensor reaches another worker. By reference, among CPU devices of one node and among workers on one
/// CUDA device: each side holds it while it works with it, and nobody in between. By copy: a buffer at either
/// end for each message of a micro-batch.
enum class HandOver { copy, reference };
HandOver hand_over(const Device& a, const Device& b);
/// Among all these positions of the cluster: by reference where every two of them do.
HandOver hand_over(const Cluster& cluster, std::span<const int> positions);
/// Of the messages of one stage, beyond the inputs that it keeps. `in` and `out` in bytes per micro-batch.
std::int64_t message_bytes(HandOver hand_over, std::int64_t in, std::int64_t out);

/// Of a stage that has received `passing` bytes which it holds until its forward ends and not longer: there
/// they stand beside what it sends. The profile's workspace knows of them only where they are read.
std::int64_t workspace_in_forward(std::int64_t workspace, std::int64_t passing, std::int64_t sent);

/// Fixed costs of every device and what it may hold.
struct MemoryLimit {
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();  ///< usable, after reserve
  std::int64_t context = 0;
  HandOver in = HandOver::copy, out = HandOver::copy;  ///< from the stages in front, to those behind
};

/// Whether anything can be too large.
bool is_limited(const MemoryLimit& limit);

/// Bytes of one stage by part, as they are added up.
struct StageBytes {
  std::int64_t weights = 0, gradients = 0, optimizer = 0, versions = 0;
  std::int64_t saved = 0;      ///< one micro-batch, without what `input` holds
  std::int64_t input = 0;      ///< one micro-batch
  std::int64_t boundary = 0;   ///< message_bytes()
  std::int64_t again = 0;      ///< what runs again has in backward, of one micro-batch at a time
  std::int64_t workspace = 0;  ///< above all that is saved: Chain::transient()
  int in_flight = 1;
  std::int64_t total() const {
    return weights + gradients + optimizer + versions + in_flight * (saved + input) + again + boundary +
           workspace;
  }
};

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
    int fitting = 0;
    int too_wide = std::numeric_limits<int>::max();
  };

  int window(const StageRange& stage, int demand) const;
  bool fits_window(const StageRange& stage, int window) const;
  StageBytes bytes(const StageRange& stage, int window) const;
  /// Of a stage that runs nothing again, and the same with what it does.
  StageBytes kept_bytes(const StageRange& stage, int window) const;
  StageBytes bytes_again(const StageRange& stage, StageBytes part) const;
  StageBytes fixed_bytes(const StageRange& stage, int window) const;  ///< without tensors of micro-batches
  int micro_batches_of(int replicas) const;

  const Chain& chain_;
  InFlight in_flight_;
  MemoryLimit limit_;
  mutable std::vector<std::vector<Windows>>
      known_;  ///< by begin, then end modulo the row: the latest one asked
};

}  // namespace pp::plan
