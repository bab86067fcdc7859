// A profile as peers' planners see it: layers with one time each, at one micro-batch size.
#pragma once

#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/graph.h"
#include "libplan/peers/peer.h"
#include "libplan/request/device_orders.h"

namespace pp::plan {

struct PeerInput {
  const Profile& profile;  ///< outlives this
  PlanGraph graph;
  std::vector<LayerPrice>
      prices;  ///< per layer, at the profile's first size; the loss is part of the last layer
  std::vector<LinearOrder> orders;  ///< the distinct ones of linear_orders()

  int size() const { return graph.size(); }
  /// Forward plus backward, seconds.
  double compute(int layer) const;
  double total_compute() const;
  /// What one device may hold; infinity: no limit.
  double memory_limit(const PeerOptions& options) const;
};

PeerInput peer_input(const Profile& profile);

/// Prefix sums and live-set cuts of one order.
Chain chain_of(const PeerInput& input, const LinearOrder& order);

PeerPlan empty_plan(const PeerInput& input, const PeerOptions& options);

std::vector<std::string> names_of(const PeerInput& input, const std::vector<int>& layers);

}  // namespace pp::plan
