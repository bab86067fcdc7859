// The combinations a request leaves open (devices, micro-batches, layer order, schedule), each ready to be
// searched.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "libplan/cost/lattice.h"
#include "libplan/request/device_orders.h"
#include "libplan/request/request.h"
#include "libplan/request/shapes.h"
#include "libplan/search/candidates/find_candidates.h"
#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

/// One combination. Its space has all devices of the set.
struct PlanCase : SearchPart {
  std::shared_ptr<const void> owner;  ///< of all that the references name
  const DeviceSet& devices;
  const BatchOption& batch;
  const LinearOrder& order;
  const ScheduleRow& schedule;
  const Chain& chain;
  const Chain& bound_chain;
  const Chain* any_order;  ///< the same over the lattice, in the first layer order; else null
  /// The distinct SearchParts on the same chain of schedules that do not place their stages, counted from 0. A
  /// case that is not `fresh` has the part of an earlier one.
  int search;
  bool fresh;
};

/// In a fixed order: device sets, micro-batch counts, layer orders, schedules. A `lattice` must outlive them.
/// Throws pp::Error (usage) when a micro-batch size cannot be priced, and the refusal of the schedules when
/// none takes the micro-batches.
void for_each_case(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                   const PlanRequest& request, const std::function<void(const PlanCase&)>& visit,
                   const Lattice* lattice = nullptr);

/// Schedules that no case has, because they refuse the micro-batches or the profile does not price theirs.
std::vector<std::string_view> unpriced_schedules(const Profile& profile, const PlanRequest& request);

/// What find_candidates() needs; `memory` must be that of the case.
SearchCase search_case(const PlanCase& one, const StageMemory& memory, const Cluster& cluster,
                       const PlanRequest& request);

/// A candidate of a case, not priced yet.
Finalist finalist_of(const PlanCase& one, const Candidate& candidate);

}  // namespace pp::plan
