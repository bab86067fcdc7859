// Candidates whose stages are searched on the very devices they get, for clusters in which it matters which
// device that is: several levels of links, unequal speeds or memories.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "libplan/cost/seats.h"
#include "libplan/search/candidates/cases.h"

namespace pp::plan {

/// A partition and the devices of its workers in turn, as positions in the cluster.
struct OrderedCandidate {
  Partition partition;
  std::vector<int> devices;
  double estimate = 0;  ///< as Candidate's
};

/// The orders of the devices that the placement of the request allows, and what the spans of each offer: made
/// once for all cases of a machine. Both arguments must outlive it.
class DeviceLists {
 public:
  DeviceLists(const Cluster& cluster, const PlanRequest& request) : cluster_(cluster), request_(request) {}

  struct List {
    std::vector<int> order;  ///< positions, the device of the last layers first
    std::shared_ptr<const Seats> seats;
  };
  /// For the devices of a case; none for one that leaves devices out, for a cluster in which no order matters,
  /// and above 64 devices.
  const std::vector<List>& of(const PlanCase& one);

 private:
  using Key = std::tuple<SharedMemory, double, std::int64_t, bool>;
  const Cluster& cluster_;
  const PlanRequest& request_;
  std::map<Key, std::vector<List>> lists_;
};

/// On one list of the case, in this part of its space: the Pareto points of the step, or the best period; all
/// keep to each device's memory. Nothing when no objective is within `near`.
std::vector<OrderedCandidate> ordered_candidates(const PlanCase& one, const Cluster& cluster,
                                                 const PlanRequest& request, const DeviceLists::List& list,
                                                 const SearchSpace& space, double near);

/// What is searched of the case on each list, one after the other: at first, where that leaves out half of the
/// boundaries, only those at which less crosses than on both sides, such as the ends of blocks.
std::vector<SearchSpace> listed_spaces(const PlanCase& one);

/// Seconds per step or micro-batch that no plan of the case undercuts, whatever devices its stages get; where
/// that is not below `enough`, any bound that is not. Where no order matters, and for cases that leave devices
/// out, `flat`, the bound for devices that are all like the best.
double ordered_bound(const PlanCase& one, const Cluster& cluster, const PlanRequest& request, double flat,
                     double enough);

/// Whether a plan may use as many bytes of every device. Otherwise bounds that know no order of the devices are
/// not those of all plans.
bool equal_memories(const Cluster& cluster, const PlanRequest& request);

/// Positions for the workers of a partition that was found without regard to single devices.
std::vector<int> worker_positions(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
                                  const Partition& partition);

}  // namespace pp::plan
