#include "libplan/simulate/memory_walk.h"

#include <algorithm>
#include <cmath>

#include "libplan/simulate/simulate.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

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
  Walk(const ProgramIndex& index, const SimulationInput& input, int worker, const MemoryVisit& visit)
      : index_(index),
        input_(input),
        scale_(bytes_scale(input)),
        visit_(visit),
        counts_versions_(!input.programs.synchronous && input.keeps_versions),
        begin_(index.worker_begin[at(worker)]),
        end_(index.worker_begin[at(worker) + 1]) {
    versions_.resize(at(index.stages));
    version_held_.resize(at(end_ - begin_));
    for (const int s : index.stages_of_worker[at(worker)]) {
      const StageCosts& costs = input.stages[at(s)];
      held_.boundary += costs.boundary;
      if (index.rules == RuleSet::swapped) continue;
      load(costs, true);
      held_.versions += extra_versions(s);
    }
  }

  void run() {
    visit_(kNone, WalkPoint::before_all, held_);
    for (int id = begin_; id < end_; ++id) {
      const Op& op = index_.ops[at(id)];
      const StageCosts& costs = input_.stages[pp::index(op.stage)];
      start(id, op, costs);
      visit_(id, WalkPoint::start, held_);
      finish(id, op, costs);
      visit_(id, WalkPoint::end, held_);
    }
  }

 private:
  double scale(const Op& op) const { return scale_.empty() ? 1 : scale_[at(op.micro_batch)]; }

  /// Weights that are updated come and go with their gradients and optimizer state.
  void load(const StageCosts& costs, bool with_state) {
    held_.weights += costs.weights;
    if (!with_state) return;
    held_.gradients += costs.gradients;
    held_.optimizer += costs.optimizer;
  }
  void evict(const StageCosts& costs, bool with_state) {
    held_.weights -= costs.weights;
    if (!with_state) return;
    held_.gradients -= costs.gradients;
    held_.optimizer -= costs.optimizer;
  }

  /// What layers that run again bring back in this kind of backward.
  static Bytes again(const StageCosts& costs, OpKind kind) {
    return kind == OpKind::backward ? costs.again : costs.again_split;
  }

  /// What a micro-batch holds at the end of this backward, or of its first half.
  Bytes of_backward(const StageCosts& costs, const Op& op) const {
    return scaled(costs.input, scale(op)) + scaled(costs.saved, scale(op)) +
           scaled(again(costs, op.kind), scale(op));
  }

  /// W has no more of its micro-batch than I had.
  static Bytes workspace(const StageCosts& costs, OpKind kind) {
    if (kind != OpKind::weight_gradient || !costs.waiting) return costs.workspace;
    return std::max(costs.saved + costs.input + costs.workspace - *costs.waiting, Bytes(0));
  }

  bool is_swapped() const { return index_.rules == RuleSet::swapped; }

  /// Whether this worker holds something of the micro-batch after its forward: not if it has no backward for it
  /// (inference, swaps, early clock steps), nor if the input is stashed on the host until the recomputation.
  bool is_kept(int forward) const {
    return index_.local(Slot::backward, forward) != kNone &&
           !(is_swapped() && index_.local(Slot::recompute, forward) != kNone);
  }

  void start(int id, const Op& op, const StageCosts& costs) {
    if (op.kind == OpKind::forward) {
      const bool activations = is_kept(id) && index_.local(Slot::recompute, id) == kNone;
      held_.saved += scaled(costs.input, scale(op)) + (activations ? scaled(costs.saved, scale(op)) : Bytes(0));
      if (counts_versions_) version_held_[at(id - begin_)] = versions_[pp::index(op.stage)].hold();
    } else if (op.kind == OpKind::recompute) {
      held_.saved +=
          scaled(costs.saved, scale(op)) + (is_swapped() ? scaled(costs.input, scale(op)) : Bytes(0));
    } else if (op.kind == OpKind::load) {
      load(costs, index_.carries_state[at(id)]);
    } else if (op.kind == OpKind::backward || op.kind == OpKind::input_gradient) {
      held_.saved += scaled(again(costs, op.kind), scale(op));
    }
    if (has_micro_batch(op.kind)) held_.workspace = scaled(workspace(costs, op.kind), scale(op));
  }

  void finish(int id, const Op& op, const StageCosts& costs) {
    held_.workspace = Bytes(0);
    if (op.kind == OpKind::forward && !is_kept(id)) {
      held_.saved -= scaled(costs.input, scale(op));
      release_version(id, op);
    } else if (op.kind == OpKind::input_gradient && costs.waiting) {
      held_.saved -= of_backward(costs, op);
      held_.saved += scaled(*costs.waiting, scale(op));
    } else if (completes_backward(op.kind)) {
      const bool waited = op.kind == OpKind::weight_gradient && costs.waiting;
      held_.saved -= waited ? scaled(*costs.waiting, scale(op)) : of_backward(costs, op);
      release_version(index_.local(Slot::forward, id), op);
    } else if (op.kind == OpKind::update && counts_versions_) {
      change_versions(op.stage, [](Versions& v) { v.update(); });
    } else if (op.kind == OpKind::evict) {
      evict(costs, index_.carries_state[at(id)]);
    }
  }

  void release_version(int forward, const Op& op) {
    if (!counts_versions_) return;
    change_versions(op.stage, [&](Versions& v) { v.release(version_held_[at(forward - begin_)]); });
  }

  template <class Change>
  void change_versions(StageId stage, Change change) {
    held_.versions -= extra_versions(number(stage));
    change(versions_[pp::index(stage)]);
    held_.versions += extra_versions(number(stage));
  }

  Bytes extra_versions(int stage) const {
    const StageCosts& costs = input_.stages[at(stage)];
    return (costs.weights - costs.frozen) * (std::max(versions_[at(stage)].alive(), costs.versions) - 1);
  }

  const ProgramIndex& index_;
  const SimulationInput& input_;
  const std::vector<double>& scale_;
  const MemoryVisit& visit_;
  const bool counts_versions_;
  const int begin_;
  const int end_;
  std::vector<Versions> versions_;  ///< per stage
  std::vector<int> version_held_;   ///< per forward of this worker, by position
  MemoryParts held_;
};

/// Of every part and of their sum.
void raise(MemoryPeak& peak, const MemoryParts& held) {
  peak.weights = std::max(peak.weights, held.weights);
  peak.gradients = std::max(peak.gradients, held.gradients);
  peak.optimizer = std::max(peak.optimizer, held.optimizer);
  peak.versions = std::max(peak.versions, held.versions);
  peak.saved = std::max(peak.saved, held.saved);
  peak.boundary = std::max(peak.boundary, held.boundary);
  peak.workspace = std::max(peak.workspace, held.workspace);
  peak.peak = std::max(peak.peak, total(held));
}

/// The events of `result` by operation id: events of one worker stand in the order of its list.
std::vector<const OpEvent*> events_by_id(const ProgramIndex& index, const SimulationResult& result) {
  std::vector<int> next(index.worker_begin.begin(), index.worker_begin.end() - 1);
  std::vector<const OpEvent*> events(index.ops.size());
  bool same = result.ops.size() == index.ops.size();
  for (std::size_t i = 0; same && i < result.ops.size(); ++i) {
    const OpEvent& event = result.ops[i];
    same = pp::index(event.worker) < next.size() &&
           next[pp::index(event.worker)] < static_cast<int>(events.size());
    if (!same) break;
    const std::size_t id = at(next[pp::index(event.worker)]++);
    same = index.ops[id] == event.op;
    events[id] = &event;
  }
  if (!same) throw Error(ErrorKind::internal, "memory curves: the result does not belong to the input");
  return events;
}

}  // namespace

void walk_worker(const ProgramIndex& index, const SimulationInput& input, int worker,
                 const MemoryVisit& visit) {
  Walk(index, input, worker, visit).run();
}

std::vector<MemoryPeak> walk_memory(const ProgramIndex& index, const SimulationInput& input) {
  std::vector<MemoryPeak> peaks(at(index.workers()));
  for (int worker = 0; worker < index.workers(); ++worker) {
    MemoryPeak& peak = peaks[at(worker)];
    walk_worker(index, input, worker, [&peak](int, WalkPoint, const MemoryParts& held) { raise(peak, held); });
  }
  return peaks;
}

std::vector<MemoryCurve> memory_curves(const SimulationInput& input, const SimulationResult& result) {
  const ProgramIndex index = index_simulation(input);
  const std::vector<const OpEvent*> events = events_by_id(index, result);
  std::vector<MemoryCurve> curves(at(index.workers()));
  for (int worker = 0; worker < index.workers(); ++worker) {
    MemoryCurve& curve = curves[at(worker)];
    walk_worker(index, input, worker, [&](int id, WalkPoint point, const MemoryParts& held) {
      if (!curve.empty() && curve.back().held == held) return;
      const Seconds time = id == kNone                 ? Seconds(0)
                           : point == WalkPoint::start ? events[at(id)]->start
                                                       : events[at(id)]->end;
      curve.push_back({time, held});
    });
  }
  return curves;
}

Bytes highest(std::span<const MemoryCurve> curves) {
  Bytes bytes;
  for (const MemoryCurve& curve : curves) {
    for (const MemoryStep& step : curve) bytes = std::max(bytes, total(step.held));
  }
  return bytes;
}

std::vector<MemoryParts> sample(const MemoryCurve& curve, Seconds length, int columns) {
  std::vector<MemoryParts> samples(at(columns));
  const auto column = [&](Seconds time) {
    const double place = length.count() > 0 ? time / length * columns : 0;
    return std::clamp(static_cast<int>(place), 0, columns - 1);
  };
  std::vector<Bytes> totals(at(columns), Bytes(-1));
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const Bytes held = total(curve[i].held);
    const bool last = i + 1 == curve.size();
    const int begin = column(curve[i].time);
    const int end = last ? columns - 1 : column(curve[i + 1].time);
    // A step that ends where a column begins is not in that column, unless it has no length.
    const bool ends_before = !last && end > begin && length / columns * end >= curve[i + 1].time;
    for (int c = begin; c <= end - (ends_before ? 1 : 0); ++c) {
      if (held <= totals[at(c)]) continue;
      totals[at(c)] = held;
      samples[at(c)] = curve[i].held;
    }
  }
  return samples;
}

}  // namespace pp::plan
