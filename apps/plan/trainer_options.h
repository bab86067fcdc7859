// --for: plans that another trainer can run.
#pragma once

#include <optional>

#include "apps/plan/planning_cases.h"
#include "apps/plan/planning_options.h"
#include "libplan/interop/trainer_rules.h"

namespace pp::plan_tool {

/// --for.
void add_trainer_option(const cli::Command& command, std::optional<plan::Trainer>& trainer);

/// The request within what the trainer can run of the profile (for_trainer()); where they are not given, with
/// AdamW and with a float32 master of half weights. Throws pp::Error: usage as for_trainer(), data for a model
/// that the trainer has no place for.
plan::PlanRequest trainer_request(plan::Trainer trainer, plan::PlanRequest request, const RequestOptions& given,
                                  const Profile& profile);

/// Says on stderr which optimizer is planned with where none is given, and what no plan for the trainer knows,
/// and whose steps the profile has in place of the trainer's.
void introduce(plan::Trainer trainer, const RequestOptions& given, const Profile& profile);

/// A mini-batch of which equal replicas may use all of so many devices, near `mini_batch`; nothing: it is one.
std::optional<int> divisible_mini_batch(int mini_batch, int devices);

}  // namespace pp::plan_tool
