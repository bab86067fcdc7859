#include "librun/swap/residency.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "libplan/plan/programs.h"
#include "libplan/price/predict.h"
#include "libplan/schedule/program_index.h"
#include "libplan/search/planner.h"
#include "libplan/simulate/memory_walk.h"
#include "libprofile/core/error.h"

namespace pp::run {

namespace {

using plan::Op;
using plan::OpKind;

bool updates(const plan::Plan& plan, StageId stage, WorkerId worker) {
  const plan::Program& program = plan.workers[index(worker)].program.program;
  return std::ranges::count(program, Op{OpKind::update, stage, 0}) > 0;
}

/// Bytes of the parameters of a stage, each once: all, and what is trained of them.
struct WeightBytes {
  Bytes all, trained;
};
WeightBytes weights_of(const plan::Plan& plan, const ResolvedModel& model, const plan::Stage& stage) {
  WeightBytes bytes;
  for (int l = 0; l < model.layer_count(); ++l) {
    if (std::ranges::count(stage.layers, model.graph.layers[static_cast<std::size_t>(l)].name) == 0) continue;
    bytes.all += parameter_bytes(model, l, plan.training.dtype);
    bytes.trained += trained_bytes(model, l, plan.training.dtype);
  }
  return bytes;
}

/// What a worker holds of weights alone where it holds most, and at which operation.
struct Most {
  Bytes bytes;
  Op op{};
};

Most most_weights(const plan::ProgramIndex& programs, const std::vector<WeightBytes>& weights,
                  double state_ratio, WorkerId worker) {
  Most most;
  Bytes held;
  const auto w = index(worker);
  for (int id = programs.worker_begin[w]; id < programs.worker_begin[w + 1]; ++id) {
    const auto i = static_cast<std::size_t>(id);
    const Op& op = programs.ops[i];
    if (op.kind != OpKind::load && op.kind != OpKind::evict) continue;
    const WeightBytes& one = weights[index(op.stage)];
    const double more = programs.carries_state[i] ? 1 + state_ratio : 0;
    const Bytes all = one.all + Bytes(std::llround(more * static_cast<double>(one.trained.value)));
    held = op.kind == OpKind::load ? held + all : held - all;
    if (held > most.bytes) most = {held, op};
  }
  return most;
}

/// The same of all that the plan predicts; nothing without a prediction.
Most most_predicted(const plan::Plan& plan, WorkerId worker) {
  if (plan.predicted.stages.size() != plan.stages.size()) return {};
  const plan::SimulationInput input = plan::simulation_input(plan, 1);
  const plan::ProgramIndex programs = plan::index_programs(input.programs);
  Most most;
  plan::walk_worker(programs, input, number(worker),
                    [&](int id, plan::WalkPoint, const plan::MemoryParts& held) {
                      if (id == plan::kNone || plan::total(held) <= most.bytes) return;
                      most = {plan::total(held), programs.ops[static_cast<std::size_t>(id)]};
                    });
  return most;
}

void check_fits(const plan::Plan& plan, const ResolvedModel& model, const RunOptions& options,
                double state_ratio) {
  const plan::ProgramIndex programs = plan::index_programs(plan::program_set(plan));
  std::vector<WeightBytes> weights;
  for (const plan::Stage& stage : plan.stages) weights.push_back(weights_of(plan, model, stage));
  for (const plan::Worker& worker : plan.workers) {
    const std::optional<Bytes> limit = device_limit(plan, options, worker.id);
    if (!limit) continue;
    Most most = most_weights(programs, weights, state_ratio, worker.id);
    if (const Most predicted = most_predicted(plan, worker.id); predicted.bytes > most.bytes) most = predicted;
    if (most.bytes <= *limit) continue;
    const std::string s = std::to_string(number(most.op.stage));
    refuse(ErrorKind::data, "worker " + std::to_string(number(worker.id)) + ": stage " + s + ": at " +
                                plan::to_text(most.op) + " its device holds " + to_text(most.bytes) +
                                " (weights " + to_text(weights[index(most.op.stage)].all) + " of stage " + s +
                                "), the limit is " + to_text(*limit) +
                                "; plan with more --chunks or smaller micro-batches, or raise --memory-limit");
  }
}

}  // namespace

bool swaps(const plan::Plan& plan) {
  const plan::ScheduleRow* const row = plan::find_schedule(plan.schedule.name);
  return row != nullptr && row->rules == plan::RuleSet::swapped;
}

WorkerId home_of(const plan::Plan& plan, StageId stage, WorkerId worker) {
  if (updates(plan, stage, worker)) return worker;
  const std::vector<WorkerId>& workers = plan.stages[index(stage)].workers;
  const auto found = std::ranges::find_if(workers, [&](WorkerId w) { return updates(plan, stage, w); });
  if (found != workers.end()) return *found;
  throw Error(ErrorKind::internal, "stage " + std::to_string(number(stage)) + " is updated by no worker");
}

std::optional<Bytes> device_limit(const plan::Plan& plan, const ExecutionOptions& options, WorkerId worker) {
  if (options.memory_limit) return options.memory_limit;
  const Bytes memory = device_of(plan, worker).memory;
  return memory.value > 0 ? std::optional(memory) : std::nullopt;
}

plan::Program forward_part(const plan::Program& program) {
  std::vector<bool> kept(program.size(), false);
  std::map<StageId, std::pair<std::size_t, bool>> open;  // where its L stands; whether a forward followed
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Op& op = program[i];
    if (op.kind == OpKind::load) open[op.stage] = {i, false};
    if (op.kind == OpKind::forward) kept[i] = open[op.stage].second = true;
    if (op.kind != OpKind::evict) continue;
    const auto [load, forward] = open[op.stage];
    kept[load] = kept[i] = forward;
  }
  plan::Program part;
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (kept[i]) part.push_back(program[i]);
  }
  return part;
}

std::vector<PlannedSwaps> planned_swaps(const plan::Plan& plan) {
  const plan::ProgramIndex programs = plan::index_programs(plan::program_set(plan));
  std::vector<PlannedSwaps> all(plan.workers.size());
  for (std::size_t id = 0; id < programs.ops.size(); ++id) {
    const Op& op = programs.ops[id];
    if (op.kind != OpKind::load && op.kind != OpKind::evict) continue;
    PlannedSwaps& swaps = all[static_cast<std::size_t>(programs.worker_of[id])];
    const bool state = programs.carries_state[id];
    if (op.kind == OpKind::evict && !state) continue;  // nothing has changed
    ++(op.kind == OpKind::load ? swaps.loads : swaps.writes);
    if (plan.predicted.stages.size() != plan.stages.size()) continue;
    const plan::StageCosts& costs = plan.predicted.stages[index(op.stage)];
    (op.kind == OpKind::load ? swaps.in : swaps.out) += costs.weights + (state ? costs.optimizer : Bytes(0));
  }
  return all;
}

void check_swapped(const plan::Plan& plan, const ResolvedModel& model, const RunOptions& options,
                   const Placement& placement, double state_ratio) {
  if (!swaps(plan)) return;
  const std::string name = "schedule " + plan.schedule.name;
  if (!placement.alone()) {
    refuse(ErrorKind::usage, name + ": weights live in the memory of one process; run it without mpirun");
  }
  if (options.accumulate > 1) {
    refuse(ErrorKind::usage,
           "--accumulate: under " + name +
               " gradients leave the device with their stage; plan with more --micro-batches");
  }
  if (!plan.tied.empty())
    refuse(ErrorKind::data, "/tied/0: " + name + " keeps shared weights in one stage; plan with --tied stage");
  check_fits(plan, model, options, state_ratio);
}

}  // namespace pp::run
