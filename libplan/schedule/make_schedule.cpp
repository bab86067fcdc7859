#include <algorithm>
#include <string>

#include "libplan/schedule/generators.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

int micro_batches_of(const ScheduleRow& row, const ScheduleRequest& request, const Schedule& schedule,
                     int length) {
  if (row.rules == RuleSet::clocked) return clock_steps(length, static_cast<int>(schedule.workers.size()));
  return row.synchronous ? request.micro_batches * request.token_count : length;
}

/// Each runs its share of the micro-batches.
Schedule pipelines_of(const ScheduleRequest& request, const ScheduleRow& row) {
  const int pipelines = request.replicas.front();
  if (pipelines == 1) return row.generate(request);
  ScheduleRequest one = request;
  one.replicas.assign(request.replicas.size(), 1);
  one.micro_batches /= pipelines;
  return with_context("each of " + std::to_string(pipelines) + " pipelines",
                      [&] { return side_by_side(row.generate(one), pipelines); });
}

}  // namespace

Schedule make_schedule(const ScheduleRequest& request) {
  const ScheduleRow& row = require_schedule(request.name);
  check_request(request, row);
  if (row.generate == nullptr)
    refuse(request, "its programs come from costs or from a file, not from these numbers");
  Schedule schedule =
      row.replication == Replication::pipelines ? pipelines_of(request, row) : row.generate(request);
  insert_recompute(request, schedule);
  return schedule;
}

ProgramSet program_set(const ScheduleRequest& request, const Schedule& schedule, int stream_length) {
  const ScheduleRow& row = require_schedule(request.name);
  ProgramSet set;
  set.stage_workers = schedule.stage_workers;
  set.synchronous = row.synchronous;
  set.rules = row.rules;
  set.micro_batches = micro_batches_of(row, request, schedule, stream_length);
  if (row.rules == RuleSet::standard && !row.synchronous)
    set.backwards_per_update = std::max(1, request.micro_batches / request.replicas.front());
  if (request.token_count > 1) set.tokens = {request.micro_batches, request.tokens.barrier};
  for (const WorkerProgram& worker : schedule.workers) {
    if (!worker.stream) {
      set.workers.push_back(worker.program);
    } else {
      set.workers.push_back(row.rules == RuleSet::clocked ? expand_frames(*worker.stream, stream_length)
                                                          : expand(*worker.stream, stream_length));
    }
  }
  return set;
}

ProgramSet program_set(const ScheduleRequest& request, int stream_length) {
  return program_set(request, make_schedule(request), stream_length);
}

}  // namespace pp::plan
