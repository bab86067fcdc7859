// The loads of our cost model (`--cost-model pp`) on an ordered list of devices: each stage at the speed,
// memory, all-reduce and links of the devices it gets.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/links.h"
#include "libplan/cost/memory.h"
#include "libplan/cost/ordered_cost.h"
#include "libplan/cost/recompute_time.h"

namespace pp::plan {

enum class OrderedKind {
  period,  ///< asynchronous: seconds per update in steady state
  step,    ///< synchronous: the steady part of a step, as LoadKind::step
  steady   ///< synchronous: all of a stage's work and messages in a step, which chained steps repeat
};

/// Whom a stage hands over to by reference: its neighbours where the device next to its span allows it, which
/// says too little of stages over several nodes; or nobody unless all devices of the list do.
enum class Neighbours { next_device, all_devices };

struct OrderedOptions {
  OrderedKind kind = OrderedKind::step;
  int micro_batches = 1;                           ///< per step or update
  double all_reduce_overlap = 0;                   ///< share of the last backward that hides the all-reduce
  double chain_speed = 1;                          ///< of the device that the times of the chain are of
  RecomputeMode recompute = RecomputeMode::never;  ///< its time is part of every stage's load
  Neighbours neighbours = Neighbours::all_devices;
};

/// A cluster and a list of positions in it, the device of the last layers first, with the bytes each may use
/// (in the order of the list; the context is in `memory`).
struct OrderedDevices {
  const Cluster& cluster;
  std::span<const int> positions;
  std::span<const std::int64_t> bytes;
};

/// A cut is charged at the best link from the stage to the device next to its span; replicas of one node share
/// its card for what leaves it. Everything handed in must outlive it.
class OrderedLoad : public OrderedCost, public OrderedMemory {
 public:
  OrderedLoad(const Chain& chain, const OrderedDevices& devices, const OrderedOptions& options,
              const InFlight& in_flight, std::int64_t context);
  OrderedLoad(const OrderedLoad&) = delete;
  OrderedLoad& operator=(const OrderedLoad&) = delete;

  double stage(int begin, int end, DeviceSpan span) const override;
  double cut(int boundary, DeviceSpan span, CutSide side) const override;
  /// By a lower bound, the window that the devices behind force at least.
  bool fits(int begin, int end, DeviceSpan span) const override;
  /// Above 16 devices, spans with equally many devices of every node they touch; all where no card is shared.
  bool considers(DeviceSpan span) const override;
  double passage(int boundary, DeviceSpan span) const override;
  double fill(int boundary, DeviceSpan span) const override;

  int demand(DeviceSpan span, const Behind& behind) const override;
  bool fits(const StageRange& stage, DeviceSpan span, int demand) const override;

  /// Every stage on its own devices, exactly.
  bool fits(const Partition& partition) const;
  /// Time of the whole chain on the fastest device: no partition passes faster.
  double least_passage() const;
  /// For SearchSpace::scan_replicas.
  int scan_replicas() const;

 private:
  /// The best link from a device of a span to the position next to it.
  struct Gate {
    Link link;
    bool shared_card = false;  ///< it leaves the node
  };
  struct Span {
    double slowness = 1;       ///< times of its slowest device, relative to the chain's
    double micro_batches = 1;  ///< of its busiest replica
    double per_card = 1;       ///< most of its devices behind one network card
    bool even = true;          ///< as many behind every one
    Gate in, out;              ///< to the stage in front, to the one behind; unset at the ends of the list
    std::vector<AllReduceForm> all_reduce;
    const StageMemory* memory = nullptr;  ///< of its smallest device
    const RecomputeTime* again = nullptr;
  };
  Span make_span(const OrderedDevices& devices, const std::vector<int>& cards, DeviceSpan range) const;
  MemoryLimit make_limit(const OrderedDevices& devices, DeviceSpan range, HandOver all) const;
  const Span& at(DeviceSpan span) const;
  double turns(double micro_batches) const;

  const Chain& chain_;
  OrderedOptions options_;
  int devices_;
  double least_slowness_ = std::numeric_limits<double>::infinity();
  std::vector<Span> spans_;  ///< [first][count - 1]
  using Key = std::tuple<std::int64_t, HandOver, HandOver>;
  std::map<Key, StageMemory> memories_;  ///< by the bytes of the smallest device, and how it hands over
  std::map<Key, RecomputeTime> again_;
};

}  // namespace pp::plan
