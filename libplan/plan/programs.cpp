#include "libplan/plan/programs.h"

#include <algorithm>
#include <string>

#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/queues.h"
#include "libprofile/core/index.h"

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

std::string quoted_name(std::string_view name) { return std::string("\"").append(name).append("\""); }

[[noreturn]] void fail_at(const std::string& where, const std::string& message) {
  throw Error(ErrorKind::data, where + ": " + message);
}

void check_layers(const Stage& stage, const std::string& where) {
  for (auto layer = stage.recompute.begin(); layer != stage.recompute.end(); ++layer) {
    if (std::ranges::count(stage.layers, *layer) == 0)
      fail_at(where, "layer " + quoted_name(*layer) + " is not in the stage");
    if (std::count(stage.recompute.begin(), layer, *layer) > 0)
      fail_at(where, "layer " + quoted_name(*layer) + " stands twice");
  }
}

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

std::vector<std::optional<Op>> whole_recomputes(const Plan& plan) {
  std::vector<std::optional<Op>> first(plan.stages.size());
  const auto note = [&](const Program& program) {
    for (const Op& op : program) {
      if (op.kind == OpKind::recompute && !first[index(op.stage)]) first[index(op.stage)] = op;
    }
  };
  for (const Worker& worker : plan.workers) {
    note(worker.program.program);
    if (!worker.program.stream) continue;
    note(worker.program.stream->prologue);
    note(worker.program.stream->body);
  }
  return first;
}

std::string recompute_text(const Plan& plan) {
  const std::vector<std::optional<Op>> whole = whole_recomputes(plan);
  std::string text;
  bool nothing = true;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::size_t layers = plan.stages[s].recompute.size();
    text.append(s == 0 ? "" : "|").append(whole[s] ? "all" : layers == 0 ? "-" : std::to_string(layers));
    nothing = nothing && !whole[s] && layers == 0;
  }
  return nothing ? "" : text;
}

void check_recompute(const Plan& plan) {
  const RecomputePolicy policy = plan.schedule.recompute;
  const std::vector<std::optional<Op>> whole = whole_recomputes(plan);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::string where = "/stages/" + std::to_string(s) + "/recompute";
    if (whole[s] && policy == RecomputePolicy::never) {
      fail_at("/schedule/recompute",
              "is \"never\", but the programs have " + to_text(*whole[s]) + "; use \"per_stage\"");
    }
    if (plan.stages[s].recompute.empty()) continue;
    if (policy != RecomputePolicy::per_stage)
      fail_at(where, "must be empty with recompute " + quoted_name(name_of(policy)) + "; use \"per_stage\"");
    if (whole[s])
      fail_at(where, "must be empty: the programs run the whole stage again, " + to_text(*whole[s]));
    check_layers(plan.stages[s], where);
  }
}

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

std::string layer_range(const Stage& stage) {
  if (stage.layers.size() == 1) return stage.layers.front();
  return stage.layers.front() + " .. " + stage.layers.back();
}

}  // namespace pp::plan
