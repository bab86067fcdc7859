// The options of `pp-plan simulate --schedule NAME` (a schedule by itself, with costs instead of a profile),
// and --for: plans that another trainer can run.
#pragma once

#include <optional>
#include <string>

#include "apps/cli/shell.h"
#include "apps/plan/planning_cases.h"
#include "apps/plan/planning_options.h"
#include "libplan/interop/trainer_rules.h"
#include "libplan/report/schedule_study.h"

namespace pp::plan_tool {

struct ScheduleOptions {
  plan::ScheduleStudy study;
  std::string csv;  ///< programs in PyTorch's exchange form, instead of a name
  int stages = 0;
  std::string replicas;
  std::string window;
  std::string costs;
  std::string recompute;
  std::string in_flight_limits;
  std::string forward_packs;
  std::string backward_packs;
  int per_update = 0;
  int tokens = 1;
};

/// Not with the argument `plan`, which the command has.
void add_schedule_options(const cli::Command& command, ScheduleOptions& options);

/// Throws pp::Error (usage) for options that do not go together or are missing.
plan::ScheduleStudy study_of(const ScheduleOptions& options);

/// --for: the trainer that `trainer` is.
template <auto trainer>
constexpr auto trainer_option() {
  return option<trainer>("--for", "search only plans that this trainer can run",
                         {.group = "Search", .value = "TRAINER"});
}

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
