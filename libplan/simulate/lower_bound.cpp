#include "libplan/simulate/lower_bound.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

#include "libplan/simulate/op_costs.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Longest paths through the dependencies of a set of programs.
class LongestPaths {
 public:
  LongestPaths(const ProgramIndex& index, const SimulationInput& input)
      : index_(index),
        synchronous_(input.programs.synchronous),
        costs_(index, input),
        updates_(updates()),
        jobs_(index.ops.size()) {
    for (int id = 0; id < static_cast<int>(jobs_.size()); ++id) jobs_[at(id)].duration = costs_.duration(id);
    const std::vector<int> order = topological_order();
    for (const int id : order) {
      for_each_consumer(id, [&](int consumer, double transfer) {
        double& head = jobs_[at(consumer)].head;
        head = std::max(head, jobs_[at(id)].head + jobs_[at(id)].duration + transfer);
      });
    }
    for (auto id = order.rbegin(); id != order.rend(); ++id) {
      for_each_consumer(*id, [&](int consumer, double transfer) {
        double& tail = jobs_[at(*id)].tail;
        tail = std::max(tail, transfer + jobs_[at(consumer)].duration + jobs_[at(consumer)].tail);
      });
    }
  }

  /// The operations of one worker.
  std::span<const Job> jobs(int worker) const {
    const int begin = index_.worker_begin[at(worker)];
    return std::span(jobs_).subspan(at(begin), at(index_.worker_begin[at(worker) + 1] - begin));
  }

 private:
  /// visit(consumer, seconds from the end of `id` to its earliest start).
  template <class Visit>
  void for_each_consumer(int id, Visit visit) const {
    index_.for_each_consumer(
        id, [&](int consumer, int edge) { visit(consumer, costs_.free_transfer(id, consumer, edge)); });
    if (updates_[at(id)] > 0) visit(updates_[at(id)], 0.0);
  }

  /// By operation: the update that waits for it, as all backwards of its stage on its worker end before that.
  /// 0: none, as no list begins with one.
  std::vector<int> updates() const {
    std::vector<int> result(index_.ops.size(), 0);
    if (!synchronous_) return result;
    for (std::size_t worker = 0; worker + 1 < index_.worker_begin.size(); ++worker) {
      std::map<StageId, int> of_stage;
      for (int id = index_.worker_begin[worker + 1] - 1; id >= index_.worker_begin[worker]; --id) {
        const Op& op = index_.ops[at(id)];
        if (op.kind == OpKind::update) of_stage[op.stage] = id;
        const auto update = of_stage.find(op.stage);
        if (completes_backward(op.kind) && update != of_stage.end()) result[at(id)] = update->second;
      }
    }
    return result;
  }

  std::vector<int> topological_order() const {
    std::vector<int> missing(index_.ops.size(), 0);
    const int count = static_cast<int>(missing.size());
    for (int id = 0; id < count; ++id) {
      for_each_consumer(id, [&](int consumer, double) { ++missing[at(consumer)]; });
    }
    std::vector<int> order;
    for (int id = 0; id < count; ++id) {
      if (missing[at(id)] == 0) order.push_back(id);
    }
    for (std::size_t next = 0; next < order.size(); ++next) {
      for_each_consumer(order[next], [&](int consumer, double) {
        if (--missing[at(consumer)] == 0) order.push_back(consumer);
      });
    }
    return order;
  }

  const ProgramIndex& index_;
  const bool synchronous_;
  const OpCosts costs_;
  const std::vector<int> updates_;
  std::vector<Job> jobs_;  ///< by operation id
};

}  // namespace

double one_machine_bound(std::span<const Job> jobs) {
  std::vector<Job> waiting(jobs.begin(), jobs.end());
  std::ranges::sort(waiting, {}, &Job::head);
  const auto shorter_tail = [](const Job& a, const Job& b) { return a.tail < b.tail; };
  std::priority_queue<Job, std::vector<Job>, decltype(shorter_tail)> ready(shorter_tail);
  double now = 0;
  double end = 0;
  for (auto next = waiting.begin(); next != waiting.end() || !ready.empty();) {
    if (ready.empty()) now = std::max(now, next->head);
    for (; next != waiting.end() && next->head <= now; ++next) ready.push(*next);
    Job job = ready.top();
    ready.pop();
    const double done = now + job.duration;
    if (next == waiting.end() || done <= next->head) {
      now = done;
      end = std::max(end, now + job.tail);
    } else {
      job.duration = done - next->head;
      now = next->head;
      ready.push(job);
    }
  }
  return end;
}

Seconds makespan_bound(const SimulationInput& input) {
  const ProgramIndex index = index_simulation(input);
  const LongestPaths paths(index, input);
  double bound = 0;
  for (int w = 0; w < index.workers(); ++w) bound = std::max(bound, one_machine_bound(paths.jobs(w)));
  return Seconds(bound);
}

Seconds period_bound(const SimulationInput& input) {
  const ProgramIndex index = index_simulation(input);
  const OpCosts costs(index, input);
  std::vector<double> busy(at(index.workers()), 0), shared(busy);  // by worker, and by hardware
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    const std::size_t worker = at(index.worker_of[at(id)]);
    busy[worker] += costs.duration(id);
    if (!input.hardware.empty()) shared[at(input.hardware[worker])] += costs.own_time(id);
  }
  busy.insert(busy.end(), shared.begin(), shared.end());
  return Seconds(*std::ranges::max_element(busy));
}

}  // namespace pp::plan
