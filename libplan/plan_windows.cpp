#include "libplan/plan_windows.h"

#include <algorithm>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

using Ends = bool (*)(OpKind);

constexpr bool frees_activations(OpKind kind) {
  return kind == OpKind::backward || kind == OpKind::input_gradient;
}

/// Adds a forward and takes away what ends its stay; the largest value on the way.
class WindowCounter {
 public:
  /// Forwards before the first backward's micro-batch keep nothing (PARTIME).
  WindowCounter(StageId stage, int first_backward, std::span<const double> bytes, Ends ends)
      : stage_(stage), first_backward_(first_backward), bytes_(bytes), ends_(ends) {}
  void count(const Program& program) {
    for (const Op& op : program) {
      if (op.stage != stage_) continue;
      if (op.kind == OpKind::forward && op.micro_batch >= first_backward_)
        peak_ = std::max(peak_, held_ += share(op));
      if (ends_(op.kind)) held_ -= share(op);
    }
  }
  double peak() const { return peak_; }

 private:
  double share(const Op& op) const { return bytes_.empty() ? 1 : bytes_[at(op.micro_batch)]; }

  StageId stage_;
  int first_backward_;
  std::span<const double> bytes_;
  Ends ends_;
  double held_ = 0;
  double peak_ = 0;
};

/// 0 where there is none.
int first_backward(const WorkerProgram& program, StageId stage) {
  std::optional<int> least;
  const auto look = [&](const Program& ops) {
    for (const Op& op : ops) {
      if (op.stage == stage && completes_backward(op.kind))
        least = std::min(least.value_or(op.micro_batch), op.micro_batch);
    }
  };
  look(program.stream ? program.stream->prologue : program.program);
  if (program.stream) look(program.stream->body);
  return least.value_or(0);
}

double most_held(const WorkerProgram& program, StageId stage, std::span<const double> bytes, Ends ends) {
  WindowCounter counter(stage, first_backward(program, stage),
                        program.stream ? std::span<const double>() : bytes, ends);
  counter.count(program.stream ? program.stream->prologue : program.program);
  if (program.stream) counter.count(program.stream->body);
  return counter.peak();
}

}  // namespace

int window_of(const WorkerProgram& program, StageId stage) {
  return static_cast<int>(held_of(program, stage, {}));
}

int whole_window_of(const WorkerProgram& program, StageId stage) {
  return static_cast<int>(most_held(program, stage, {}, frees_activations));
}

double held_of(const WorkerProgram& program, StageId stage, std::span<const double> bytes) {
  return most_held(program, stage, bytes, completes_backward);
}

std::vector<int> windows_of(const Plan& plan) {
  std::vector<int> result;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    int most = 0;
    for (const WorkerId worker : plan.stages[s].workers)
      most = std::max(most, window_of(plan.workers[index(worker)].program, StageId{static_cast<int>(s)}));
    result.push_back(most);
  }
  return result;
}

std::vector<int> classic_windows(const Plan& plan) {
  const ScheduleRow* row = find_schedule(plan.schedule.name);
  if (row == nullptr || !row->windowed || !row->synchronous) return {};
  std::vector<int> replicas;
  for (const Stage& stage : plan.stages) replicas.push_back(static_cast<int>(stage.workers.size()));
  std::vector<int> result = windows(WindowRule::win, replicas);
  for (std::size_t s = 0; s < result.size(); ++s) {
    const int all = (plan.training.micro_batches + replicas[s] - 1) / replicas[s];
    result[s] = std::min(result[s], all);
  }
  return result;
}

std::vector<std::optional<int>> widened_from(const Plan& plan) {
  const std::vector<int> classic = classic_windows(plan);
  const std::vector<int> held = windows_of(plan);
  std::vector<std::optional<int>> result(classic.size());
  for (std::size_t s = 0; s < classic.size(); ++s) {
    if (held[s] > classic[s]) result[s] = classic[s];
  }
  if (std::ranges::none_of(result, [](const auto& one) { return one.has_value(); })) return {};
  return result;
}

}  // namespace pp::plan
