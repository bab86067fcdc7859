// 1F1B with a flush: Megatron's non-interleaved schedule, PipeDream-Flush; with a window of one on a single
// replicated stage, data parallelism (2.2). Narayanan et al., SC'21.
#include <algorithm>

#include "libplan/schedule/generators.h"

namespace pp::plan {
namespace {

/// K forwards, then one backward and one forward in turn, then the remaining backwards: never more than
/// `window` in flight. The replica runs micro-batches q, q + r, q + 2r, ...
Program one_and_one(const StageReplica& replica, int window) {
  const int warm_up = std::min(window, replica.count) - 1;
  Program program;
  const auto append = [&](OpKind kind, int i) {
    program.push_back({kind, replica.stage, replica.rank + i * replica.replicas});
  };
  for (int i = 0; i < warm_up; ++i) append(OpKind::forward, i);
  for (int i = 0; i < replica.count; ++i) {
    if (i + warm_up < replica.count) append(OpKind::forward, i + warm_up);
    append(OpKind::backward, i);
  }
  return program;
}

}  // namespace

Schedule generate_one_forward_one_backward(const ScheduleRequest& request) {
  const std::vector<int> window = request_windows(request);
  return replicated_schedule(
      request, [&](const StageReplica& replica) { return one_and_one(replica, window[index(replica.stage)]); });
}

Schedule generate_data_parallel(const ScheduleRequest& request) {
  if (request.replicas.size() != 1) {
    refuse(request, std::to_string(request.replicas.size()) +
                        " stages; every replica holds the whole model, give one stage with all replicas");
  }
  return replicated_schedule(request, [](const StageReplica& replica) { return one_and_one(replica, 1); });
}

}  // namespace pp::plan
