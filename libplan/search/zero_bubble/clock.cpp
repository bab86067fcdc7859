#include "libplan/search/zero_bubble/clock.h"

#include <algorithm>
#include <numeric>

namespace pp::plan {
namespace {

constexpr int kSteps = 3;  ///< a period is the difference of the last two

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

OrderClock::OrderClock(const Pipeline& pipeline)
    : pipeline_(pipeline), per_worker_(3 * pipeline.micro_batches), step_ends_(kSteps) {
  const std::size_t operations = at(kSteps * per_worker_) * pipeline.stages.size();
  ends_.resize(operations);
  causes_.resize(operations);
  const std::vector<int> none(at(kSteps * pipeline.micro_batches));
  forward_ids_.assign(pipeline.stages.size(), none);
  input_ids_ = forward_ids_;
  for (auto& ends : step_ends_) ends.resize(pipeline.stages.size());
}

OrderTimes OrderClock::time(const Order& order) {
  workers_.assign(order.size(), Worker{});
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t w = 0; w < order.size(); ++w) moved |= advance(w, order[w]);
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
  Worker& worker = workers_[w];
  const StageTimes& stage = pipeline_.stages[w];
  const Worker before = worker;
  while (worker.step < kSteps) {
    const OpKind kind = order[at(worker.position)];
    Start start{worker.free, worker.last};
    int micro_batch = worker.weights;
    if (kind == OpKind::forward) {
      micro_batch = worker.forwards;
      if (!wait(stage.activations, &Worker::forwards, forward_ids_, micro_batch, start)) break;
    } else if (kind == OpKind::input_gradient) {
      micro_batch = worker.inputs;
      if (!wait(stage.gradients, &Worker::inputs, input_ids_, micro_batch, start)) break;
    }
    const int id =
        (worker.step * static_cast<int>(workers_.size()) + static_cast<int>(w)) * per_worker_ + worker.position;
    const std::size_t local = at(micro_batch % pipeline_.micro_batches);
    worker.free = ends_[at(id)] = start.time + stage.of(kind)[local];
    causes_[at(id)] = start.cause;
    worker.last = id;
    if (kind == OpKind::forward) {
      forward_ids_[w][at(worker.forwards++)] = id;
    } else if (kind == OpKind::input_gradient) {
      input_ids_[w][at(worker.inputs++)] = id;
    } else {
      ++worker.weights;
    }
    if (++worker.position == per_worker_) {
      worker.free += stage.update;
      step_ends_[at(worker.step++)][w] = worker.free;
      worker.position = 0;
    }
  }
  return worker.step != before.step || worker.position != before.position;
}

/// Moves `start` behind the arrivals; false if a tensor has not been produced yet.
bool OrderClock::wait(const std::vector<Inlet>& inlets, int Worker::*done,
                      const std::vector<std::vector<int>>& ids, int micro_batch, Start& start) const {
  for (const Inlet& inlet : inlets) {
    if (workers_[inlet.from].*done <= micro_batch) return false;
    const int producer = ids[inlet.from][at(micro_batch)];
    const double arrival = ends_[at(producer)] + inlet.delay[at(micro_batch % pipeline_.micro_batches)];
    if (arrival > start.time) start = {arrival, producer};
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
