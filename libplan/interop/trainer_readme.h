// The README.md of an exported folder: what the plan promises, how to start it, and what was not modelled.
#pragma once

#include <string>
#include <vector>

#include "libplan/interop/trainer_export.h"

namespace pp::plan::detail {

/// What a README says beside what follows from the plan.
struct TrainerNotes {
  std::string trainer;                    ///< with the release that its options are of
  std::string launch;                     ///< shell lines
  std::vector<std::string> yours;         ///< what a file leaves to its reader
  std::vector<std::string> not_modelled;  ///< by the plan's times and bytes, of this trainer
};

std::string trainer_readme(const Plan& plan, const Lane& lane, const TrainerNotes& notes,
                           const std::vector<std::string>& lost);

/// GPUs of a node that the plan uses, and nodes: what torchrun is told.
struct Processes {
  int per_node = 1, nodes = 1;
};
/// Throws pp::Error (data) in the name of `trainer` where nodes have several numbers of the plan's GPUs, which
/// torchrun cannot start.
Processes processes_of(const Plan& plan, const std::string& trainer);

/// How ranks go through the plan's devices, in ascending order.
enum class RankOrder {
  any,       ///< one replica, or one stage
  replicas,  ///< the replicas of a stage are neighbours: Megatron's and TorchTitan's own order
  pipelines  ///< the stages of a replica are
};
/// Nothing: in another order.
std::optional<RankOrder> rank_order(const Plan& plan, const Lane& lane);

}  // namespace pp::plan::detail
