#include "libplan/search/zero_bubble/clock.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

constexpr int kSteps = 3;  ///< a period is the difference of the last two

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::usage, "auto-zb: " + message); }

std::string worker_name(std::size_t w) { return "worker " + std::to_string(w); }

void check_placement(const ProgramSet& set) {
  if (set.stage_workers.empty()) refuse("no stages; give at least one");
  if (set.micro_batches < 1) {
    refuse("micro_batches = " + std::to_string(set.micro_batches) + "; give at least 1");
  }
  if (!set.synchronous) refuse("it orders one synchronous step; choose an asynchronous schedule by name");
  for (std::size_t s = 0; s < set.stage_workers.size(); ++s) {
    const auto& workers = set.stage_workers[s];
    if (workers.size() != 1) {
      refuse("stage " + std::to_string(s) + " has " + std::to_string(workers.size()) +
             " replicas; give each stage one worker, or use 1f1b");
    }
    if (workers.front() != WorkerId{static_cast<int>(s)}) {
      refuse("stage " + std::to_string(s) + " is on worker " + std::to_string(number(workers.front())) +
             "; place stage s on worker s");
    }
  }
}

void check_size(const char* what, std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  throw Error(ErrorKind::internal,
              "auto-zb: " + std::to_string(found) + " " + what + ", expected " + std::to_string(wanted));
}

/// Optional vectors may be empty.
void check_sizes(const ZeroBubbleRequest& request) {
  const SimulationInput& input = request.pipeline;
  const std::size_t workers = input.programs.stage_workers.size();
  check_size("stage costs", input.stages.size(), workers);
  if (!request.in_flight_limit.empty()) check_size("in-flight limits", request.in_flight_limit.size(), workers);
  if (!request.memory_limit.empty()) check_size("memory limits", request.memory_limit.size(), workers);
  if (!input.micro_batch_scale.empty()) {
    check_size("micro-batch scales", input.micro_batch_scale.size(), at(input.programs.micro_batches));
  }
}

/// Bytes of one worker, as the memory walk of the simulator adds them up, or more.
class WorkerMemory {
 public:
  WorkerMemory(const SimulationInput& input, std::size_t stage)
      : costs_(input.stages[stage]), scale_(bytes_scale(input)) {}

  /// From F to W, at most: whether I has been is not looked at.
  Bytes held(std::size_t m) const {
    const Bytes kept = scaled(costs_.saved, m) + scaled(costs_.input, m);
    return std::max(kept, scaled(costs_.waiting.value_or(Bytes(0)), m));
  }
  Bytes workspace(std::size_t m) const { return scaled(costs_.workspace, m); }
  Bytes fixed() const { return costs_.fixed(); }

 private:
  Bytes scaled(Bytes bytes, std::size_t m) const {
    if (scale_.empty() || scale_[m] == 1) return bytes;
    return Bytes(std::llround(static_cast<double>(bytes.value) * scale_[m]));
  }

  const StageCosts& costs_;
  const std::vector<double>& scale_;
};

/// Lowers `room` to what fits `limit`, the largest workspace always counted.
void limit_bytes(Room& room, const WorkerMemory& memory, Bytes limit, std::size_t worker) {
  Bytes workspace;
  for (std::size_t m = 0; m < room.size(); ++m) workspace = std::max(workspace, memory.workspace(m));
  Bytes used = memory.fixed() + workspace;
  std::size_t end = 0;  // micro-batches w..end-1 are held
  for (std::size_t w = 0; w < room.size(); ++w) {
    while (end < room.size() && used + memory.held(end) <= limit) used += memory.held(end++);
    if (end == w) {
      refuse(worker_name(worker) + " needs " + std::to_string((used + memory.held(w)).value) +
             " bytes to hold micro-batch " + std::to_string(w) + ", its limit is " +
             std::to_string(limit.value) + "; raise the limit or make the micro-batches smaller");
    }
    room[w] = std::min(room[w], static_cast<int>(end));
    used -= memory.held(w);
  }
}

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

std::vector<Room> make_rooms(const ZeroBubbleRequest& request) {
  const ProgramSet& set = request.pipeline.programs;
  check_placement(set);
  check_sizes(request);
  const std::size_t workers = set.stage_workers.size();
  const int count = set.micro_batches;
  std::vector<Room> rooms(workers, Room(at(count), count));
  for (std::size_t s = 0; s < workers; ++s) {
    if (!request.in_flight_limit.empty()) {
      const int limit = request.in_flight_limit[s];
      if (limit < 1) {
        refuse(worker_name(s) + " may hold " + std::to_string(limit) + " micro-batches; allow at least 1");
      }
      for (int w = 0; w < count; ++w) rooms[s][at(w)] = std::min(count - w, limit) + w;
    }
    if (!request.memory_limit.empty()) {
      limit_bytes(rooms[s], WorkerMemory(request.pipeline, s), request.memory_limit[s], s);
    }
  }
  return rooms;
}

}  // namespace pp::plan
