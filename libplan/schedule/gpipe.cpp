// GPipe (Huang et al., NeurIPS'19) and its two ends: naive model parallelism, one micro-batch at a time through
// the stages. All forwards, then all backwards: in the same order 0..M-1, so that gradients are added as
// single-device accumulation adds them, or last to first as in the paper's figure and torchgpipe.
#include "libplan/schedule/generators.h"

namespace pp::plan {
namespace {

enum class BackwardOrder { ascending, descending };

Schedule all_forwards_first(const ScheduleRequest& request, BackwardOrder order) {
  return replicated_schedule(request, [&](const StageReplica& replica) {
    Program program;
    const auto append = [&](OpKind kind, int i) {
      program.push_back({kind, replica.stage, replica.rank + i * replica.replicas});
    };
    for (int i = 0; i < replica.count; ++i) append(OpKind::forward, i);
    for (int i = 0; i < replica.count; ++i)
      append(OpKind::backward, order == BackwardOrder::ascending ? i : replica.count - 1 - i);
    return program;
  });
}

}  // namespace

Schedule generate_gpipe(const ScheduleRequest& request) {
  return all_forwards_first(request, BackwardOrder::ascending);
}

Schedule generate_gpipe_reverse(const ScheduleRequest& request) {
  return all_forwards_first(request, BackwardOrder::descending);
}

Schedule generate_naive(const ScheduleRequest& request) {
  if (request.micro_batches != 1)
    refuse(request, "needs micro_batches = 1, found " + std::to_string(request.micro_batches));
  return all_forwards_first(request, BackwardOrder::ascending);
}

}  // namespace pp::plan
