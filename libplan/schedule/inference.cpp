// Forward-only pipelines: a batch in micro-batches, and token by token.
#include "libplan/schedule/generators.h"

namespace pp::plan {
namespace {

Schedule forwards(const ScheduleRequest& request, int micro_batches) {
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    for (int q = 0; q < request.replicas[s]; ++q) {
      Program program;
      for (int m = q; m < micro_batches; m += request.replicas[s])
        program.push_back({OpKind::forward, StageId{static_cast<int>(s)}, m});
      schedule.workers.push_back({std::move(program), std::nullopt});
    }
  }
  return schedule;
}

}  // namespace

Schedule generate_inference(const ScheduleRequest& request) { return forwards(request, request.micro_batches); }

Schedule generate_generation(const ScheduleRequest& request) {
  if (request.token_count < 1) {
    refuse(request, "tokens = " + std::to_string(request.token_count) + "; give at least 1");
  }
  return forwards(request, request.micro_batches * request.token_count);
}

}  // namespace pp::plan
