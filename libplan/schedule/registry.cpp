#include <string>

#include "libplan/schedule/generators.h"
#include "libprofile/core/error.h"

namespace pp::plan {

const std::vector<ScheduleRow>& schedule_table() {
  static const std::vector<ScheduleRow> table{
      {"gpipe", "all forwards, then all backwards", "", true, WeightPolicy::flush, generate_gpipe},
      {"1f1b", "one forward, one backward in turn", "", true, WeightPolicy::flush,
       generate_one_forward_one_backward},
      {"pipedream", "1f1b without flush, stashed weights", "micro_batches = 1", false, WeightPolicy::stash,
       generate_pipedream},
  };
  return table;
}

const ScheduleRow* find_schedule(std::string_view name) {
  for (const ScheduleRow& row : schedule_table()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const ScheduleRow& require_schedule(std::string_view name) {
  if (const ScheduleRow* row = find_schedule(name)) return *row;
  std::string names;
  for (const ScheduleRow& row : schedule_table()) names.append(names.empty() ? "" : ", ").append(row.name);
  throw Error(ErrorKind::usage, "schedule: unknown name \"" + std::string(name) + "\"; use one of " + names);
}

}  // namespace pp::plan
