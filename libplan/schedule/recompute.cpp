// Re-materialisation as a pass over a schedule's lists.
#include "libplan/schedule/generators.h"

namespace pp::plan {
namespace {

bool needs_activations(OpKind kind) { return kind == OpKind::backward || kind == OpKind::input_gradient; }

/// The actual number of micro-batches decides which one is the last, not a configured one.
bool recomputes(Recompute mode, int micro_batch, int micro_batches) {
  return mode == Recompute::always || (mode == Recompute::except_last && micro_batch != micro_batches - 1);
}

Program with_recompute(const ScheduleRequest& request, const Program& program) {
  Program result;
  for (const Op& op : program) {
    const Recompute mode = request.recompute[request.recompute.size() == 1 ? 0 : index(op.stage)];
    if (needs_activations(op.kind) && recomputes(mode, op.micro_batch, request.micro_batches))
      result.push_back({OpKind::recompute, op.stage, op.micro_batch});
    result.push_back(op);
  }
  return result;
}

}  // namespace

void insert_recompute(const ScheduleRequest& request, Schedule& schedule) {
  if (request.recompute.empty()) return;
  for (WorkerProgram& worker : schedule.workers) {
    worker.program = with_recompute(request, worker.program);
    if (worker.stream) {
      worker.stream->prologue = with_recompute(request, worker.stream->prologue);
      worker.stream->body = with_recompute(request, worker.stream->body);
    }
  }
}

}  // namespace pp::plan
