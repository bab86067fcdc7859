#include "libplan/simulate/memory_walk.h"

#include <cmath>

namespace pp::plan {
namespace {

std::size_t at(int i) { return ProgramIndex::at(i); }

Bytes scaled(Bytes bytes, double factor) {
  return factor == 1 ? bytes : Bytes(std::llround(static_cast<double>(bytes.value) * factor));
}

/// Weight versions of one stage on one worker.
class Versions {
 public:
  /// The version that a forward runs on, from now until release().
  int hold() {
    holders_.resize(at(newest_) + 1);
    ++holders_.back();
    return newest_;
  }
  void release(int version) {
    if (--holders_[at(version)] == 0 && version != newest_) --held_older_;
  }
  /// Out of place while a micro-batch holds the newest, else in place.
  void update() {
    if (at(newest_) < holders_.size() && holders_.back() > 0) ++held_older_;
    ++newest_;
  }
  int alive() const { return 1 + held_older_; }

 private:
  std::vector<int> holders_;  ///< micro-batches in flight, by version
  int newest_ = 0;
  int held_older_ = 0;  ///< versions before the newest that a micro-batch holds
};

class Walk {
 public:
  Walk(const ProgramIndex& index, const SimulationInput& input, int worker)
      : index_(index),
        input_(input),
        begin_(index.worker_begin[at(worker)]),
        end_(index.worker_begin[at(worker) + 1]) {
    const std::vector<int>& stages = index.stages_of_worker[at(worker)];
    versions_.resize(at(index.stages));
    version_held_.resize(at(end_ - begin_));
    for (const int s : stages) {
      const StageCosts& costs = input.stages[at(s)];
      peak_.weights += costs.weights;
      peak_.gradients += costs.gradients;
      peak_.optimizer += costs.optimizer;
      peak_.boundary += costs.boundary;
      versions_bytes_ += extra_versions(s);
    }
  }

  MemoryPeak run() {
    observe(Bytes(0));
    for (int id = begin_; id < end_; ++id) {
      const Op& op = index_.ops[at(id)];
      const StageCosts& costs = input_.stages[pp::index(op.stage)];
      start(id, op, costs);
      observe(has_micro_batch(op.kind) ? scaled(costs.workspace, scale(op)) : Bytes(0));
      finish(id, op, costs);
    }
    return peak_;
  }

 private:
  double scale(const Op& op) const {
    return input_.micro_batch_scale.empty() ? 1 : input_.micro_batch_scale[at(op.micro_batch)];
  }

  void start(int id, const Op& op, const StageCosts& costs) {
    if (op.kind == OpKind::forward) {
      const bool recomputed = index_.local(Slot::recompute, id) != kNone;
      saved_ += scaled(costs.input, scale(op)) + (recomputed ? Bytes(0) : scaled(costs.saved, scale(op)));
      if (!input_.programs.synchronous) version_held_[at(id - begin_)] = versions_[pp::index(op.stage)].hold();
    } else if (op.kind == OpKind::recompute) {
      saved_ += scaled(costs.saved, scale(op));
    }
  }

  void finish(int id, const Op& op, const StageCosts& costs) {
    if (completes_backward(op.kind)) {
      saved_ -= scaled(costs.input, scale(op)) + scaled(costs.saved, scale(op));
      if (!input_.programs.synchronous) {
        const int forward = index_.local(Slot::forward, id);
        change_versions(op.stage, [&](Versions& v) { v.release(version_held_[at(forward - begin_)]); });
      }
    } else if (op.kind == OpKind::update && !input_.programs.synchronous) {
      change_versions(op.stage, [](Versions& v) { v.update(); });
      observe(Bytes(0));
    }
  }

  template <class Change>
  void change_versions(StageId stage, Change change) {
    versions_bytes_ -= extra_versions(number(stage));
    change(versions_[pp::index(stage)]);
    versions_bytes_ += extra_versions(number(stage));
  }

  Bytes extra_versions(int stage) const {
    const StageCosts& costs = input_.stages[at(stage)];
    return costs.weights * (std::max(versions_[at(stage)].alive(), costs.versions) - 1);
  }

  void observe(Bytes workspace) {
    peak_.saved = std::max(peak_.saved, saved_);
    peak_.versions = std::max(peak_.versions, versions_bytes_);
    peak_.workspace = std::max(peak_.workspace, workspace);
    const Bytes constant = peak_.weights + peak_.gradients + peak_.optimizer + peak_.boundary;
    peak_.peak = std::max(peak_.peak, constant + versions_bytes_ + saved_ + workspace);
  }

  const ProgramIndex& index_;
  const SimulationInput& input_;
  const int begin_;
  const int end_;
  std::vector<Versions> versions_;  ///< per stage
  std::vector<int> version_held_;   ///< per forward of this worker, by position
  Bytes saved_;
  Bytes versions_bytes_;
  MemoryPeak peak_;
};

}  // namespace

std::vector<MemoryPeak> walk_memory(const ProgramIndex& index, const SimulationInput& input) {
  std::vector<MemoryPeak> result;
  result.reserve(at(index.workers()));
  for (int worker = 0; worker < index.workers(); ++worker) result.push_back(Walk(index, input, worker).run());
  return result;
}

}  // namespace pp::plan
