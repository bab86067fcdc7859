#include "libplan/plan_programs.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "libplan/schedule/limits.h"
#include "libplan/schedule/versions.h"

namespace pp::plan {
namespace {

/// Rounds of a stream after which nothing new happens to its weight versions.
int turns_of(const Plan& plan) {
  const WeightPolicy policy = plan.schedule.weight_policy;
  if (policy == WeightPolicy::vertical_sync) return 2 + static_cast<int>(plan.stages.size());
  return aggregates(policy) ? 3 : 2;
}

/// 0 when it exceeds the limit of operations.
std::int64_t common_multiple(std::int64_t a, std::int64_t b) {
  const std::int64_t common = a / std::gcd(a, b);
  return common <= kOperationLimit / b ? common * b : 0;
}

/// Of replicas, micro-batches per update and periods; 0 when it exceeds the limit.
std::int64_t common_period(const Plan& plan) {
  std::int64_t common = 1;
  const auto join = [&](std::int64_t period) { common = common == 0 ? 0 : common_multiple(common, period); };
  join(plan.training.micro_batches);
  for (const Stage& stage : plan.stages) join(std::ssize(stage.workers));
  for (const Worker& worker : plan.workers) join(worker.program.stream->period);
  return common;
}

int last_micro_batch(const Plan& plan) {
  int last = 0;
  for (const Worker& worker : plan.workers) {
    for (const Program* part : {&worker.program.stream->prologue, &worker.program.stream->body}) {
      for (const Op& op : *part) last = std::max(last, has_micro_batch(op.kind) ? op.micro_batch : 0);
    }
  }
  return last;
}

/// Operations of all workers' streams over `length` micro-batches.
double expanded_size(const Plan& plan, std::int64_t length) {
  double operations = 0;
  for (const Worker& worker : plan.workers) {
    const Stream& stream = *worker.program.stream;
    const auto rounds = static_cast<double>(length / stream.period + 1);
    operations +=
        static_cast<double>(stream.prologue.size()) + rounds * static_cast<double>(stream.body.size());
  }
  return operations;
}

/// Micro-batches after which a stream has shown all that it ever does.
int stream_length(const Plan& plan) {
  const std::int64_t period = common_period(plan);
  const std::int64_t begin = period == 0 ? 0 : (last_micro_batch(plan) + period) / period;
  const std::int64_t length = (begin + turns_of(plan)) * period;
  if (period > 0 && expanded_size(plan, length) <= static_cast<double>(kOperationLimit))
    return static_cast<int>(length);
  throw Error(ErrorKind::data,
              "/workers: the streams do not repeat within the limit of " + std::to_string(kOperationLimit) +
                  " operations; give the stages replicas with a smaller common multiple, and all streams of a "
                  "stage one period");
}

}  // namespace

ProgramSet program_set(const Plan& plan) {
  ProgramSet set;
  set.synchronous = require_schedule(plan.schedule.name).synchronous;
  const int per_update = plan.training.micro_batches;
  set.micro_batches = set.synchronous ? per_update : stream_length(plan);
  if (!set.synchronous)
    set.backwards_per_update = std::max(1, per_update / static_cast<int>(plan.stages.front().workers.size()));
  for (const Stage& stage : plan.stages) set.stage_workers.push_back(stage.workers);
  for (const TiedParameter& tied : plan.tied) set.tied.push_back(tied.stages);
  for (const Worker& worker : plan.workers) {
    set.workers.push_back(worker.program.stream ? expand(*worker.program.stream, set.micro_batches)
                                                : worker.program.program);
  }
  return set;
}

}  // namespace pp::plan
