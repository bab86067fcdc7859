// The options of `--cost-model`: a peer's model, its machine and its way to search; and its plan as a table.
#pragma once

#include <optional>
#include <string>

#include "apps/plan/planning_options.h"
#include "libplan/peers/peer.h"

namespace pp::plan_tool {

struct PeerArguments {
  std::string cost_model = "pp";
  std::string machines;
  std::string servers;
  bool no_activation_cost = false;
  int micro_batches_in_batch = 1;
};

void add_peer_options(const cli::Command& command, PeerArguments& arguments);

/// Nothing for our own cost model. Throws pp::Error (usage) for an unknown model or strategy, for options that
/// the chosen model does not read, and for a machine that is given twice. `strategy` is the text of --strategy,
/// empty when it was not given: then the peer's own.
std::optional<plan::PeerOptions> peer_options(const PeerArguments& arguments, const std::string& strategy,
                                              const ClusterOptions& cluster, const plan::PlanRequest& request);

}  // namespace pp::plan_tool
