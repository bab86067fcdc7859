// Memory of one device of a stage, from what its layers hold: the one formula of the searches (as a bound), of
// whole partitions (exactly) and of the prices that the simulator is given; and the least time of the
// recomputation that makes a stage fit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/micro_batches.h"
#include "libplan/cost/recompute.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// Rounded up; from 0 to 10^17, which is more than any machine has.
inline std::int64_t whole_bytes(double bytes) {
  return static_cast<std::int64_t>(std::ceil(std::clamp(bytes, 0.0, 1e17)));
}

/// What entries of one piece of hardware have in common: kind, node and index.
using Hardware = std::tuple<DeviceKind, std::string_view, int>;
Hardware hardware_of(const Device& device);
/// Whether both are one piece of hardware, whose memory they share.
bool share_memory(const Device& a, const Device& b);

/// How a tensor reaches another worker. By reference, among CPU devices of one node and among workers on one
/// CUDA device: each side holds it while it works with it, neither in between. By copy: a buffer at either
/// end for each message of a micro-batch.
enum class HandOver { copy, reference };
HandOver hand_over(const Device& a, const Device& b);
/// Among all these positions of the cluster: by reference where every two of them do.
HandOver hand_over(const Cluster& cluster, std::span<const int> positions);
/// Bytes of the messages of one stage, beyond the inputs that it keeps. `in` and `out` in bytes per
/// micro-batch.
std::int64_t message_bytes(HandOver hand_over, std::int64_t in, std::int64_t out);

/// What the layers of a stage hold and exchange, added up. Tensors in bytes of one micro-batch.
struct StageContents {
  std::int64_t parameters = 0, buffers = 0;
  std::int64_t frozen = 0;     ///< the part of `parameters` that is not trained
  std::int64_t gradients = 0;  ///< one for each use of a trained parameter
  std::int64_t experts = 0;    ///< the part of what is trained that experts are
  std::int64_t saved = 0;      ///< from F to B
  std::int64_t entering = 0;   ///< the part of `saved` that is a tensor of another stage
  std::int64_t received = 0;   ///< from other stages, each tensor once
  std::int64_t kept = 0;       ///< the part of it that a forward may leave behind (graph.h)
  std::int64_t sent = 0;       ///< to other stages, each tensor once
  std::int64_t messages = 0;   ///< message_bytes()
  std::int64_t transient = 0;  ///< peak of a micro-batch above `saved`
};

struct StageKeeping {
  int versions = 1;   ///< of the weights
  int in_flight = 1;  ///< micro-batches
  int smaller = 0;    ///< of them
  double scale = 1;   ///< bytes of a smaller one, relative to the others
  OptimizerCost optimizer = {};
  int sharers = 0;          ///< replicas that divide the optimizer's state; 0: none
  bool runs_again = false;  ///< some layers, from all that the stage received
};

/// Bytes of one stage by part, as they are added up.
struct StageBytes {
  std::int64_t weights = 0, gradients = 0, optimizer = 0, versions = 0;
  std::int64_t saved = 0;      ///< one micro-batch, without what `input` holds
  std::int64_t input = 0;      ///< one micro-batch
  std::int64_t boundary = 0;   ///< message_bytes()
  std::int64_t again = 0;      ///< what is recomputed has in backward, of one micro-batch at a time
  std::int64_t workspace = 0;  ///< above all that is saved
  int in_flight = 1;
  int smaller = 0;   ///< StageKeeping::smaller
  double scale = 1;  ///< StageKeeping::scale
  std::int64_t total() const {
    return weights + gradients + optimizer + versions + held(saved) + held(input) + again + boundary +
           workspace;
  }
  /// `bytes` of every micro-batch in flight.
  std::int64_t held(std::int64_t bytes) const {
    const double all = static_cast<double>(in_flight) * static_cast<double>(bytes);
    if (all > 1e16) return whole_bytes(all);  // where integers might wrap
    if (smaller == 0) return in_flight * bytes;
    return (in_flight - smaller) * bytes + smaller * std::llround(scale * static_cast<double>(bytes));
  }
};

StageBytes stage_bytes(const StageContents& contents, const StageKeeping& keeping);

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

/// Chain and memory must outlive it.
class RecomputeTime {
 public:
  RecomputeTime(const Chain& chain, const StageMemory& memory);

  /// Seconds of one of the chain's micro-batches on one of `replicas`. When stages are always recomputed the
  /// stage's forward. With `automatic` a lower bound: layers give back all they save, in part too, cheapest
  /// first, in at most 16 classes of about equal seconds per byte. Does not fall when the stage grows. O(1),
  /// `automatic` O(16).
  double seconds(int begin, int end, int replicas) const;
  /// How many of `count` micro-batches are recomputed: the last may be left out, `one` of the chain's.
  double again(double count, double one = 1) const;

 private:
  struct Class {
    double seconds_per_byte = 0;      ///< of its cheapest layer
    std::vector<std::int64_t> saved;  ///< prefix sums over the positions
  };
  void make_classes();

  const Chain& chain_;
  const StageMemory& memory_;
  std::vector<Class> classes_;  ///< by seconds per byte
};

}  // namespace pp::plan
