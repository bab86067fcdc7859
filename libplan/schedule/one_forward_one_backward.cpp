// 1F1B with a flush (schedules.md 2.5, 2.8): Megatron's non-interleaved schedule, PipeDream-Flush, DAPPLE's PA;
// with the wide window DAPPLE's PB. Narayanan et al., SC'21; Fan et al., PPoPP'21.
#include <algorithm>

#include "libplan/schedule/generators.h"

namespace pp::plan {
namespace {

/// K forwards, then one backward and one forward in turn, then the remaining backwards: never more than
/// `window` in flight. The replica runs micro-batches q, q + r, q + 2r, ...
Program replica_program(StageId stage, int q, int replicas, int window, int micro_batches) {
  const int count = micro_batches > q ? (micro_batches - q - 1) / replicas + 1 : 0;
  const int warm_up = std::min(window, count) - 1;
  Program program;
  const auto append = [&](OpKind kind, int i) { program.push_back({kind, stage, q + i * replicas}); };
  for (int i = 0; i < warm_up; ++i) append(OpKind::forward, i);
  for (int i = 0; i < count; ++i) {
    if (i + warm_up < count) append(OpKind::forward, i + warm_up);
    append(OpKind::backward, i);
  }
  append_update(program, stage, replicas);
  return program;
}

}  // namespace

std::vector<WorkerProgram> generate_one_forward_one_backward(const ScheduleRequest& request) {
  check_request(request);
  const std::vector<int> window = request_windows(request);
  std::vector<WorkerProgram> workers;
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    for (int q = 0; q < request.replicas[s]; ++q) {
      Program program = replica_program(StageId{static_cast<int>(s)}, q, request.replicas[s], window[s],
                                        request.micro_batches);
      workers.push_back({std::move(program), std::nullopt});
    }
  }
  return workers;
}

}  // namespace pp::plan
