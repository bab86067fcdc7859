// Our cost model (`--cost-model pp`) over a chain: the loads that the searches minimise, and those that no plan
// can beat, on devices that are alike, on an ordered list of them, or wherever a stage may run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/micro_batches.h"
#include "libplan/cost/recompute.h"
#include "libplan/cost/seats.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/cost/stage_memory.h"

namespace pp::plan {

struct LoadOptions {
  LoadKind kind = LoadKind::step;
  MicroBatches micro_batches;     ///< per step or update
  double all_reduce_overlap = 0;  ///< share of the last backward that hides the all-reduce
};

/// The chain must outlive it; a bound's has the times of the least micro-batch, any other those of the largest.
/// What a stage runs again to save memory is part of its load.
class ChainCost final : public StageCost, public ExactMemory {
 public:
  ChainCost(const Chain& chain, const LoadOptions& options, Seats seats, const InFlight& in_flight);
  /// The same with seats that several costs look at.
  ChainCost(const Chain& chain, const LoadOptions& options, std::shared_ptr<const Seats> seats,
            const InFlight& in_flight);
  ChainCost(const ChainCost&) = delete;
  ChainCost& operator=(const ChainCost&) = delete;

  double stage(int begin, int end, DeviceSpan span) const override;
  double cut(int boundary, DeviceSpan span, CutSide side) const override;
  /// By the window that the devices behind force at least.
  bool fits(int begin, int end, DeviceSpan span) const override;

  bool uniform() const override { return seats_->uniform; }
  /// On lists of more than 16 devices, spans with equally many devices of every node they touch; all where no
  /// card is shared.
  bool considers(DeviceSpan span) const override;
  bool is_dominated(int replicas) const override;
  bool may_fall(int replicas) const override;

  double base() const override;
  double passage(int boundary, DeviceSpan span) const override;
  /// Forward plus gradient transfer until the last byte has arrived, and the fixed costs of one stage more.
  double fill(int boundary, DeviceSpan span) const override;

  int demand(DeviceSpan span, const Behind& behind) const override;
  bool fits(const StageRange& stage, DeviceSpan span, int demand) const override;
  bool fits(const Partition& partition) const override;

 private:
  /// Devices of one kind.
  struct Runner {
    const Chain* chain = nullptr;
    double slowness = 1;
    const RecomputeTime* again = nullptr;  ///< null: nothing runs again
  };
  /// A seat and what follows from it, by Seats::index().
  struct Place {
    const Seat* seat = nullptr;
    Runner slowest{};                              ///< for the whole model
    std::vector<Runner> others{};                  ///< of further kinds
    std::span<const AllReduceForm> all_reduce{};   ///< empty: a parameter server joins the gradients
    std::optional<ServerWays> server{};            ///< none: none does, or all share its memory
    double turns = 1;                              ///< micro-batches of the busiest replica, as the chain's
    double messages = 1;                           ///< what they exchange in proportion to that
    double in = 0, out = 0;                        ///< load of a cut per byte of a micro-batch that crosses it
    bool asks_devices = false;                     ///< messages cost the stage time
    OperationCost least_received{}, least_sent{};  ///< what they cost at least, wherever it begins and ends
    bool limited = false;                          ///< something may not fit
    const StageMemory* memory = nullptr;
  };
  const Place& place(DeviceSpan span) const { return places_[seats_->index(span)]; }
  Place make_place(const Seat& seat, int replicas, const InFlight& in_flight);
  double load_per_byte(const Seat& seat, const Gate& gate, int replicas) const;
  void add_runners(Place& place, const StageMemory& memory);
  /// A stage's load on its slowest devices, with the least that messages cost it.
  double own_load(int begin, int end, int replicas, const Place& on) const;
  double own_load(int begin, int end, int replicas, const Place& on, const Runner& runner) const;
  /// Seconds per update of a replica around a parameter server.
  double server_wait(const LoadTerms& terms, const ServerWays& ways, double bytes) const;
  /// What any stage at that side of the boundary has to do for its messages there and for the layer next to it.
  double message_load(int boundary, int replicas, const Place& on, CutSide side) const;
  /// Of least_slowness_ and least_compute_.
  void set_least();

  bool is_bound() const;
  /// Of all micro-batches, as the chain's.
  double all_time() const;

  const Chain& chain_;
  LoadOptions options_;
  std::shared_ptr<const Seats> seats_;
  bool sharded_;                   ///< InFlight::sharded
  double unit_;                    ///< time of the chain's micro-batch, relative to the largest
  Exchange least_in_, least_out_;  ///< over all inner boundaries
  double least_slowness_ = 1;
  /// The layers in front of each boundary, each on the device that takes least for it; empty: all devices
  /// are of one kind.
  std::vector<double> least_compute_;
  std::vector<Place> places_;
  using Key = std::tuple<std::int64_t, HandOver, HandOver>;
  std::map<Key, StageMemory> memories_;  ///< by the bytes of the smallest device, and how it hands over
  std::map<std::pair<const StageMemory*, const Chain*>, RecomputeTime> again_;
};

}  // namespace pp::plan
