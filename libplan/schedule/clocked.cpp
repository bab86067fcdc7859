// PARTIME (Meloni et al., "PARTIME: Scalable and Parallel Processing Over Time with Deep Neural Networks",
// 2022): one frame enters at each clock step, all stages run and update in every step. Indices are steps.
#include <algorithm>

#include "libplan/schedule/generators.h"

namespace pp::plan {

/// Before step 2(N-1)-s no gradient has come back to stage s; from then on it runs F, B, U in every step.
Schedule generate_partime(const ScheduleRequest& request) {
  const int last = static_cast<int>(request.replicas.size()) - 1;
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (int s = 0; s <= last; ++s) {
    const StageId stage{s};
    const int first_backward = std::max(s, 2 * last - s);
    Stream stream;
    for (int t = s; t < first_backward; ++t) stream.prologue.push_back({OpKind::forward, stage, t});
    stream.body = {{OpKind::forward, stage, first_backward},
                   {OpKind::backward, stage, first_backward},
                   {OpKind::update, stage, 0}};
    schedule.workers.push_back({{}, std::move(stream)});
  }
  return schedule;
}

}  // namespace pp::plan
