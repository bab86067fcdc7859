// DAPPLE's early-backward schedules PA and PB (Fan et al., PPoPP'21): 1F1B with windows that memory limits,
// every micro-batch of a replicated stage split over its replicas. Unlimited and unreplicated, PA is 1f1b and
// PB is 1f1b with the wide window.
#include <algorithm>

#include "libplan/schedule/generators.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Micro-batches that stage `s` can hold at once.
int limit_of(const ScheduleRequest& request, std::size_t s) {
  if (request.in_flight_limits.empty()) return request.micro_batches;
  const std::size_t stages = request.replicas.size();
  if (request.in_flight_limits.size() != 1 && request.in_flight_limits.size() != stages) {
    refuse(request, std::to_string(request.in_flight_limits.size()) + " in-flight limits for " +
                        std::to_string(stages) + " stages; give one for all, or one per stage");
  }
  const int limit = request.in_flight_limits[request.in_flight_limits.size() == 1 ? 0 : s];
  if (limit < 1) {
    refuse(request, "stage " + std::to_string(s) +
                        " cannot hold one micro-batch; lower the micro-batch size or recompute");
  }
  return limit;
}

/// k forwards, then B and F in turn, then the remaining B, over all micro-batches.
Program early_backward(StageId stage, int k, int micro_batches) {
  Program program;
  for (int m = 0; m < k; ++m) program.push_back({OpKind::forward, stage, m});
  for (int m = 0; m < micro_batches; ++m) {
    program.push_back({OpKind::backward, stage, m});
    if (m + k < micro_batches) program.push_back({OpKind::forward, stage, m + k});
  }
  return program;
}

/// `published(stages_left)`: the paper's window. A window that grew from one stage to the next would deadlock.
template <class Window>
Schedule dapple(const ScheduleRequest& request, Window published) {
  Schedule schedule{replicated_placement(request.replicas), {}};
  const int stages = static_cast<int>(request.replicas.size());
  int k = request.micro_batches;
  for (int s = 0; s < stages; ++s) {
    const auto place = at(s);
    k = std::min({k, published(stages - s), limit_of(request, place)});
    Program program = early_backward(StageId{s}, k, request.micro_batches);
    append_update(program, StageId{s}, request.replicas[place]);
    schedule.workers.insert(schedule.workers.end(), at(request.replicas[place]), {program, std::nullopt});
  }
  return schedule;
}

}  // namespace

Schedule generate_dapple_pa(const ScheduleRequest& request) {
  return dapple(request, [](int stages_left) { return stages_left; });
}

Schedule generate_dapple_pb(const ScheduleRequest& request) {
  return dapple(request, [](int stages_left) { return 2 * stages_left - 1; });
}

}  // namespace pp::plan
