#include "libplan/plan_programs.h"

#include <algorithm>
#include <string>

#include "libplan/schedule/limits.h"
#include "libplan/schedule/stream_length.h"

namespace pp::plan {
namespace {

StreamLength length_of(const Plan& plan) {
  std::vector<const Stream*> streams;
  for (const Worker& worker : plan.workers) streams.push_back(&*worker.program.stream);
  std::vector<std::vector<int>> stage_workers;
  for (const Stage& stage : plan.stages) {
    auto& workers = stage_workers.emplace_back();
    for (const WorkerId worker : stage.workers) workers.push_back(number(worker));
  }
  const auto length =
      stream_length(streams, stage_workers, plan.training.micro_batches, plan.schedule.weight_policy);
  if (length) return *length;
  throw Error(ErrorKind::data,
              "/workers: the streams do not repeat within the limit of " + std::to_string(kOperationLimit) +
                  " operations; give the stages replicas with a smaller common multiple, and all streams of a "
                  "stage one period");
}

}  // namespace

ProgramSet program_set(const Plan& plan) {
  ProgramSet set;
  const ScheduleRow& row = require_schedule(plan.schedule.name);
  set.synchronous = row.synchronous;
  set.rules = row.rules;
  const int per_update = plan.training.micro_batches;
  set.micro_batches = per_update;
  if (!set.synchronous) {
    const StreamLength length = length_of(plan);
    set.micro_batches = length.micro_batches;
    set.stretch = length.stretch;
    set.backwards_per_update = std::max(1, per_update / static_cast<int>(plan.stages.front().workers.size()));
  }
  for (const Stage& stage : plan.stages) set.stage_workers.push_back(stage.workers);
  for (const TiedParameter& tied : plan.tied) set.tied.push_back(tied.stages);
  const int frames = set.micro_batches;
  if (set.rules == RuleSet::clocked)
    set.micro_batches = clock_steps(frames, static_cast<int>(plan.stages.size()));
  for (const Worker& worker : plan.workers) {
    if (!worker.program.stream) {
      set.workers.push_back(worker.program.program);
    } else if (set.rules == RuleSet::clocked) {
      set.workers.push_back(expand_frames(*worker.program.stream, frames));
    } else {
      set.workers.push_back(expand_stretch(*worker.program.stream, set.micro_batches));
    }
  }
  return set;
}

}  // namespace pp::plan
