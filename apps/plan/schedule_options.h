// The options of `pp-plan simulate --schedule NAME`: a schedule by itself, with costs instead of a profile.
#pragma once

#include <string>

#include "apps/cli/shell.h"
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

/// `plan`: the option that --schedule excludes.
void add_schedule_options(const cli::Command& command, ScheduleOptions& options, cli::Option plan);

/// Throws pp::Error (usage) for options that do not go together or are missing.
plan::ScheduleStudy study_of(const ScheduleOptions& options);

}  // namespace pp::plan_tool
