// Plans by hand for tests: model, cuts, replicas and schedule; programs from the generators, no profile, no
// prediction.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libplan/plan/plan.h"
#include "libplan/price/tied_copies.h"

struct PlanSpec {
  pp::ModelGraph model{};
  std::vector<int> cuts{};      ///< boundaries: the stage after it begins with that layer
  std::vector<int> replicas{};  ///< per stage; empty: one each. Schedules with several stages per worker: empty
  std::string schedule = "1f1b";
  int mini_batch = 8;
  int micro_batches = 4;
  pp::DType dtype = pp::DType::float32;
  pp::MemoryFormat memory_format = pp::MemoryFormat::contiguous;
  pp::OptimizerName optimizer = pp::OptimizerName::sgd;
  pp::plan::Shard shard = pp::plan::Shard::none;
  pp::plan::Precision precision = pp::plan::Precision::plain;
  std::optional<pp::plan::WeightPolicy> policy{};  ///< none: the schedule's own
  std::vector<pp::plan::Recompute> recompute{};    ///< R per stage, or one for all; empty: none
  std::vector<std::string> rerun_layers{};         ///< layers that run again inside the backward of their stage
  double all_reduce_overlap = 0;
  int chunks = 0;         ///< stages per worker; 0: the schedule's own
  bool prefetch = false;  ///< harmony
  std::vector<int> forward_packs{}, backward_packs{};
  pp::Bytes memory{0};  ///< of each device; 0: not known
};

/// `ARg` of the plan's copies of shared weights.
inline void add_tied_reductions(const pp::plan::Plan& plan, std::vector<pp::plan::WorkerProgram>& programs) {
  std::vector<pp::plan::TiedCopies> copies;
  for (const pp::plan::TiedParameter& tied : plan.tied) {
    pp::plan::TiedCopies& group = copies.emplace_back();
    for (const pp::StageId stage : tied.stages) group.stages.push_back(pp::number(stage));
  }
  std::vector<std::vector<int>> stage_workers;
  for (const pp::plan::Stage& stage : plan.stages) {
    std::vector<int>& workers = stage_workers.emplace_back();
    for (const pp::WorkerId worker : stage.workers) workers.push_back(pp::number(worker));
  }
  pp::plan::add_tied_reductions(programs, copies, stage_workers);
}

/// Each worker has a CPU device whose core is left open.
inline pp::plan::Plan make_plan(const PlanSpec& spec) {
  using namespace pp;
  plan::Plan plan;
  plan.predicted.all_reduce_overlap = spec.all_reduce_overlap;
  plan.model = resolve(spec.model).graph;
  plan.training.mini_batch = spec.mini_batch;
  plan.training.micro_batches = spec.micro_batches;
  plan.training.dtype = spec.dtype;
  plan.training.memory_format = spec.memory_format;
  plan.training.optimizer = spec.optimizer;
  plan.training.shard = spec.shard;
  plan.training.precision = spec.precision;
  const plan::ScheduleRow& row = plan::require_schedule(spec.schedule);
  plan::ScheduleRequest request;
  request.name = spec.schedule;
  request.chunks_per_worker = spec.chunks;
  request.prefetch = spec.prefetch;
  request.forward_packs = spec.forward_packs;
  request.backward_packs = spec.backward_packs;
  const int stages = static_cast<int>(spec.cuts.size()) + 1;
  const int chunks = plan::chunks_of(request);
  request.replicas = spec.replicas;
  if (spec.replicas.empty()) request.replicas.assign(static_cast<std::size_t>(stages / chunks), 1);
  request.micro_batches = spec.micro_batches;
  request.recompute = spec.recompute;
  request.weight_policy = spec.policy;
  plan::Schedule schedule = plan::make_schedule(request);
  const bool again = std::ranges::any_of(schedule.workers, [](const plan::WorkerProgram& worker) {
    return std::ranges::count(worker.program, plan::OpKind::recompute, &plan::Op::kind) > 0;
  });
  const bool reruns = again || !spec.recompute.empty() || !spec.rerun_layers.empty();
  plan.schedule = {spec.schedule, spec.policy.value_or(row.default_policy()),
                   reruns ? plan::RecomputePolicy::per_stage : plan::RecomputePolicy::never, chunks};

  std::size_t layer = 0;
  for (std::size_t s = 0; s < schedule.stage_workers.size(); ++s) {
    const std::size_t end =
        s < spec.cuts.size() ? static_cast<std::size_t>(spec.cuts[s]) : plan.model.layers.size();
    plan::Stage& stage = plan.stages.emplace_back();
    for (; layer < end; ++layer) {
      stage.layers.push_back(plan.model.layers[layer].name);
      if (std::ranges::count(spec.rerun_layers, stage.layers.back()) > 0)
        stage.recompute.push_back(stage.layers.back());
    }
    stage.workers = schedule.stage_workers[s];
  }
  plan.tied = plan::tied_parameters(resolve(plan.model), plan.stages);
  add_tied_reductions(plan, schedule.workers);
  for (int id = 0; id < static_cast<int>(schedule.workers.size()); ++id) {
    plan.workers.push_back({WorkerId{id}, DeviceId{id}, 0, schedule.workers[static_cast<std::size_t>(id)]});
    Device device;
    device.id = DeviceId{id};
    device.index = id;
    device.memory = spec.memory;
    plan.devices.push_back(device);
  }
  plan.predicted.workers.resize(plan.workers.size());
  return plan;
}
