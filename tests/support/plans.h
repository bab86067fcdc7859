// Plans by hand for tests: model, cuts, replicas and schedule; programs from the generators, no profile, no
// prediction.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "libplan/plan.h"

struct PlanSpec {
  pp::ModelGraph model{};
  std::vector<int> cuts{};      ///< boundaries: the stage after it begins with that layer
  std::vector<int> replicas{};  ///< per stage; empty: one each
  std::string schedule = "1f1b";
  int mini_batch = 8;
  int micro_batches = 4;
  pp::DType dtype = pp::DType::float32;
  pp::plan::OptimizerName optimizer = pp::plan::OptimizerName::sgd;
};

/// Each worker has a CPU device whose core is left open.
inline pp::plan::Plan make_plan(const PlanSpec& spec) {
  using namespace pp;
  plan::Plan plan;
  plan.model = resolve(spec.model).graph;
  plan.training.mini_batch = spec.mini_batch;
  plan.training.micro_batches = spec.micro_batches;
  plan.training.dtype = spec.dtype;
  plan.training.optimizer = spec.optimizer;
  const plan::ScheduleRow& row = plan::require_schedule(spec.schedule);
  plan.schedule = {spec.schedule, row.default_policy(), plan::RecomputePolicy::never, 1};

  std::vector<int> replicas = spec.replicas;
  if (replicas.empty()) replicas.assign(spec.cuts.size() + 1, 1);
  plan::ScheduleRequest request;
  request.name = spec.schedule;
  request.replicas = replicas;
  request.micro_batches = spec.micro_batches;
  const std::vector<plan::WorkerProgram> programs = plan::make_schedule(request).workers;

  std::size_t layer = 0;
  for (std::size_t s = 0; s < replicas.size(); ++s) {
    const std::size_t end =
        s < spec.cuts.size() ? static_cast<std::size_t>(spec.cuts[s]) : plan.model.layers.size();
    plan::Stage& stage = plan.stages.emplace_back();
    for (; layer < end; ++layer) stage.layers.push_back(plan.model.layers[layer].name);
    for (int q = 0; q < replicas[s]; ++q) {
      const int id = static_cast<int>(plan.workers.size());
      stage.workers.push_back(WorkerId{id});
      plan.workers.push_back({WorkerId{id}, DeviceId{id}, 0, programs[static_cast<std::size_t>(id)]});
      Device device;
      device.id = DeviceId{id};
      device.index = id;
      plan.devices.push_back(device);
    }
  }
  plan.predicted.workers.resize(plan.workers.size());
  return plan;
}
