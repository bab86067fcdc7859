// GPipe (Huang et al., NeurIPS'19; schedules.md 2.3): all forwards, then all backwards in the same order
// 0..M-1, so that gradients are added as single-device accumulation adds them. (The paper's figure runs them
// backwards.)
#include "libplan/schedule/generators.h"

namespace pp::plan {

std::vector<WorkerProgram> generate_gpipe(const ScheduleRequest& request) {
  check_request(request);
  std::vector<WorkerProgram> workers;
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    const StageId stage{static_cast<int>(s)};
    const int replicas = request.replicas[s];
    for (int q = 0; q < replicas; ++q) {
      Program program;
      for (int m = q; m < request.micro_batches; m += replicas) program.push_back({OpKind::forward, stage, m});
      for (int m = q; m < request.micro_batches; m += replicas) program.push_back({OpKind::backward, stage, m});
      append_update(program, stage, replicas);
      workers.push_back({std::move(program), std::nullopt});
    }
  }
  return workers;
}

}  // namespace pp::plan
