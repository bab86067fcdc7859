// What no plan on a cluster can beat, wherever its stages run: the certificate for several levels of links and
// unequal devices.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/links.h"
#include "libplan/cost/memory.h"
#include "libplan/cost/ordered_load.h"
#include "libplan/cost/stage_cost.h"

namespace pp::plan {

/// The loads of ChainLoad's bounds, except that q replicas are no faster than the q-th fastest device, hold no
/// more than the q-th largest, and reduce no faster than over the fastest links that q devices can have among
/// them. The chain must outlive it, its times are those of `options.chain_speed`, the fastest device. Both
/// synchronous kinds of `options` mean the steady step.
class ClusterBound : public StageCost {
 public:
  ClusterBound(const Chain& chain, const OrderedDevices& devices, const OrderedOptions& options,
               const InFlight& in_flight, std::int64_t context);

  double stage(int begin, int end, int replicas) const override;
  double cut(int boundary, int replicas, CutSide side) const override;
  bool fits(int begin, int end, int replicas, int later) const override;

  /// All the work, shared by all devices in proportion to their speeds: seconds per step or update.
  double shared_work() const;

 private:
  struct ByReplicas {
    double slowness = 1;  ///< of the q-th fastest device
    std::vector<AllReduceForm> all_reduce;
    const StageMemory* memory = nullptr;  ///< of the q-th largest
    const RecomputeTime* again = nullptr;
  };
  const ByReplicas& by(int replicas) const { return by_replicas_[static_cast<std::size_t>(replicas - 1)]; }

  const Chain& chain_;
  OrderedOptions options_;
  Link best_link_;
  double speeds_ = 0;  ///< their sum, the chain's device being 1
  std::vector<ByReplicas> by_replicas_;
  std::map<std::int64_t, StageMemory> memories_;
  std::map<std::int64_t, RecomputeTime> again_;
};

}  // namespace pp::plan
