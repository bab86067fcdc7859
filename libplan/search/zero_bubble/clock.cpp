#include "libplan/search/zero_bubble/clock.h"

#include <algorithm>
#include <numeric>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr int kSteps = 3;  ///< a period is the difference of the last two

}  // namespace

OrderClock::OrderClock(const Pipeline& pipeline)
    : pipeline_(pipeline), per_worker_(3 * pipeline.micro_batches), step_ends_(kSteps) {
  causes_.resize(at(kSteps * per_worker_) * pipeline.stages.size());
  forwards_.assign(pipeline.stages.size(), std::vector<Output>(at(kSteps * pipeline.micro_batches)));
  inputs_ = forwards_;
  for (auto& ends : step_ends_) ends.resize(pipeline.stages.size());
}

OrderTimes OrderClock::time(const Order& order) {
  workers_.assign(order.size(), Worker{});
  for (bool moved = true; moved;) {  // activations go down the pipeline, gradients up
    moved = false;
    for (std::size_t w = 0; w < order.size(); ++w) moved |= advance(w, order[w]);
    for (std::size_t w = order.size(); w-- > 0;) moved |= advance(w, order[w]);
  }
  OrderTimes times;
  if (std::ranges::any_of(workers_, [](const Worker& worker) { return worker.step < kSteps; })) return times;
  const auto& last = step_ends_.back();
  times.makespan = std::ranges::max(step_ends_.front());
  times.period = std::ranges::max(last) - std::ranges::max(step_ends_[kSteps - 2]);
  times.ends = std::accumulate(last.begin(), last.end(), 0.0);
  return times;
}

/// Runs operations of worker `w` until one has to wait; false if none could run.
bool OrderClock::advance(std::size_t w, const WorkerOrder& order) {
  Worker worker = workers_[w];
  const int before = worker.last;
  const StageTimes& stage = pipeline_.stages[w];
  while (worker.step < kSteps) {
    const OpKind kind = order[at(worker.position)];
    Start start{worker.free, worker.last};
    if (kind == OpKind::forward && !wait(stage.activations, &Worker::forwards, forwards_, worker, start)) break;
    if (kind == OpKind::input_gradient && !wait(stage.gradients, &Worker::inputs, inputs_, worker, start))
      break;
    const int id =
        (worker.step * static_cast<int>(workers_.size()) + static_cast<int>(w)) * per_worker_ + worker.position;
    const int step_begin = worker.step * pipeline_.micro_batches;
    causes_[at(id)] = start.cause;
    worker.last = id;
    if (kind == OpKind::forward) {
      worker.free = start.time + stage.forward[at(worker.forwards - step_begin)];
      forwards_[w][at(worker.forwards++)] = {worker.free, id};
    } else if (kind == OpKind::input_gradient) {
      worker.free = start.time + stage.input_gradient[at(worker.inputs - step_begin)];
      inputs_[w][at(worker.inputs++)] = {worker.free, id};
    } else {
      worker.free = start.time + stage.weight_gradient[at(worker.weights++ - step_begin)];
    }
    if (++worker.position == per_worker_) {
      worker.free += stage.update;
      step_ends_[at(worker.step++)][w] = worker.free;
      worker.position = 0;
    }
  }
  workers_[w] = worker;
  return worker.last != before;
}

/// Moves `start` of the worker's next operation behind the arrivals; false if a tensor has not been produced
/// yet. A step runs every micro-batch once, so `done` counts on over the steps.
bool OrderClock::wait(const std::vector<Inlet>& inlets, int Worker::*done, const Outputs& outputs,
                      const Worker& worker, Start& start) const {
  const int micro_batch = worker.*done;
  const std::size_t in_step = at(micro_batch - worker.step * pipeline_.micro_batches);
  for (const Inlet& inlet : inlets) {
    if (workers_[inlet.from].*done <= micro_batch) return false;
    const Output& output = outputs[inlet.from][at(micro_batch)];
    const double arrival = output.end + inlet.delay[in_step];
    if (arrival > start.time) start = {arrival, output.id};
  }
  return true;
}

std::vector<Place> OrderClock::critical_path(int steps) const {
  const auto& ends = step_ends_[at(steps - 1)];
  const int workers = static_cast<int>(ends.size());
  const int worker = static_cast<int>(std::ranges::max_element(ends) - ends.begin());
  std::vector<Place> path;
  for (int id = ((steps - 1) * workers + worker + 1) * per_worker_ - 1; id >= 0; id = causes_[at(id)]) {
    const int row = id / per_worker_;
    path.push_back({row / workers, row % workers, id % per_worker_});
  }
  return path;
}

}  // namespace pp::plan
