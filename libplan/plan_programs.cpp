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

/// Whether each replica of a stage does what the first one does, one micro-batch later than the replica before
/// it.
bool take_turns(const Plan& plan) {
  const auto moved = [](Program program, int by) {
    for (Op& op : program) op.micro_batch += has_micro_batch(op.kind) ? by : 0;
    return program;
  };
  for (const Stage& stage : plan.stages) {
    const Stream& first = *plan.workers[index(stage.workers.front())].program.stream;
    for (std::size_t q = 1; q < stage.workers.size(); ++q) {
      const int by = static_cast<int>(q);
      const Stream wanted{moved(first.prologue, by), moved(first.body, by), first.period};
      if (*plan.workers[index(stage.workers[q])].program.stream != wanted) return false;
    }
  }
  return true;
}

/// Operations that are written out of streams whose replicas take turns.
constexpr double kStretch = 200'000;

/// Micro-batches in which every replica has its turns, of as long a round as a stretch affords.
std::int64_t affordable_round(const Plan& plan) {
  std::vector<int> replicas;
  for (const Stage& stage : plan.stages) replicas.push_back(static_cast<int>(stage.workers.size()));
  const double per_micro_batch = 4.0 * static_cast<double>(plan.stages.size());  // F, B, AR and U
  const int most = static_cast<int>(kStretch / (per_micro_batch * (1 + turns_of(plan))));
  return stream_round(replicas, plan.training.micro_batches, most);
}

struct Length {
  int micro_batches = 0;
  bool stretch = false;  ///< it may end within a round
};

/// Micro-batches after which a stream has shown all that it ever does. Where replicas take turns, every stage
/// does with micro-batch m + 1 what it does with m, so a stretch of a round that is too long is enough.
Length stream_length(const Plan& plan) {
  const auto length_of = [&](std::int64_t period) {
    return ((last_micro_batch(plan) + period) / period + turns_of(plan)) * period;
  };
  const std::int64_t period = common_period(plan);
  const std::int64_t whole = period == 0 ? 0 : length_of(period);
  const double limit = static_cast<double>(kOperationLimit);
  if (whole > 0 && expanded_size(plan, whole) <= kStretch) return {static_cast<int>(whole)};
  if (whole > 0 && take_turns(plan)) {
    const std::int64_t part = length_of(affordable_round(plan));
    if (expanded_size(plan, part) <= limit) return {static_cast<int>(part), true};
  }
  if (whole > 0 && expanded_size(plan, whole) <= limit) return {static_cast<int>(whole)};
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
  set.micro_batches = per_update;
  if (!set.synchronous) {
    const Length length = stream_length(plan);
    set.micro_batches = length.micro_batches;
    set.stretch = length.stretch;
    set.backwards_per_update = std::max(1, per_update / static_cast<int>(plan.stages.front().workers.size()));
  }
  for (const Stage& stage : plan.stages) set.stage_workers.push_back(stage.workers);
  for (const TiedParameter& tied : plan.tied) set.tied.push_back(tied.stages);
  for (const Worker& worker : plan.workers) {
    set.workers.push_back(worker.program.stream ? expand_stretch(*worker.program.stream, set.micro_batches)
                                                : worker.program.program);
  }
  return set;
}

}  // namespace pp::plan
