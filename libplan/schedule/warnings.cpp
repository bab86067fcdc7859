// What is legal but worse than people expect.
#include "libplan/schedule/generators.h"

namespace pp::plan {

std::string schedule_warning(const ScheduleRequest& request) {
  const int workers = static_cast<int>(request.replicas.size());
  const int m = request.micro_batches;
  const std::string found =
      "schedule " + request.name + ": micro_batches = " + std::to_string(m) + " is less than ";
  const Filling filling = require_schedule(request.name).filling;
  if (filling == Filling::bubble_free && m < 2 * workers - 1)
    return found + "2*workers-1 = " + std::to_string(2 * workers - 1) + "; the schedule is not bubble-free";
  if (filling == Filling::all_workers && m < workers) {
    const int bubble = (200 * (workers - 1) + m + workers - 1) / (2 * (m + workers - 1));
    return found + std::to_string(workers) + " workers; equal stages are idle " + std::to_string(bubble) +
           " % of the time";
  }
  return "";
}

}  // namespace pp::plan
