// Candidates whose stages are searched on the very devices they get, for clusters in which it matters which
// device that is: several levels of links, unequal speeds or memories.
#pragma once

#include <vector>

#include "libplan/search/candidates/cases.h"

namespace pp::plan {

/// A partition and the devices of its workers in turn, as positions in the cluster.
struct OrderedCandidate {
  Partition partition;
  std::vector<int> devices;
  double estimate = 0;  ///< as Candidate's
};

/// For every order of the devices that the placement of the request allows: the Pareto points of the step, or
/// the best period; all keep to each device's memory. Nothing for a case that leaves devices out, for a cluster
/// in which no order matters, and above 64 devices.
std::vector<OrderedCandidate> ordered_candidates(const PlanCase& one, const Cluster& cluster,
                                                 const PlanRequest& request);

/// Seconds per step or micro-batch that no plan of the case undercuts, whatever devices its stages get. Where
/// no order matters, and for cases that leave devices out, `flat`, the bound for devices that are all like the
/// best.
double ordered_bound(const PlanCase& one, const Cluster& cluster, const PlanRequest& request, double flat);

/// Whether a plan may use as many bytes of every device. Otherwise bounds that know no order of the devices are
/// not those of all plans.
bool equal_memories(const Cluster& cluster, const PlanRequest& request);

/// Positions for the workers of a partition that was found without regard to single devices.
std::vector<int> worker_positions(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
                                  const Partition& partition);

}  // namespace pp::plan
