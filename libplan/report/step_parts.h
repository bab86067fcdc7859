// Where the time of a plan's step goes: work, links, or waiting. Taken from the plan alone, by simulating it
// again.
#pragma once

#include <string>
#include <vector>

#include "libplan/plan.h"

namespace pp::plan {

/// Adds up to the step.
struct StepParts {
  Seconds compute{};  ///< operations of the busiest worker, all-reduces excluded
  Seconds links{};    ///< how much faster the same programs are when messages and all-reduces take no time
  Seconds bubble{};   ///< the rest: fill, drain, and waiting for other stages
  bool operator==(const StepParts&) const = default;
};

/// Something that works for one step at a time: a stage, or one direction of a worker's port or a node's card.
struct Load {
  std::string name;  ///< `stage 0 (conv1 .. relu3)`, `the link into worker 1`
  Seconds busy{};    ///< per step; of a stage, that of its busiest worker, all-reduce and update included
  bool operator==(const Load&) const = default;
};

/// Three simulations of a synchronous plan, two of a long stream of an asynchronous one. Throws pp::Error
/// (data) when the plan carries no costs.
StepParts step_parts(const Plan& plan);

/// Every stage in order, then the busiest port, if anything is sent.
std::vector<Load> loads_of(const Plan& plan);

}  // namespace pp::plan
