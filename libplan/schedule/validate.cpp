#include "libplan/schedule/validate.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/completeness.h"
#include "libplan/schedule/program_index.h"
#include "libplan/schedule/progress.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// What a worker has done for a stage since its last U.
struct Pending {
  int backwards = 0;
  bool reduced = false;
  int tied = 0;  ///< groups of the stage whose ARg has been listed
};

/// A group is the backwards from one U to the next: AR comes after the last of them, U after AR. Counts are
/// complete already, so a U or AR that comes too early is what can be wrong.
class OrderCheck {
 public:
  OrderCheck(const ProgramSet& set, const ProgramIndex& index)
      : set_(set), index_(index), partners_(partners_of_stages(set, index)) {}

  void run() {
    std::vector<Pending> pending(at(index_.stages));
    std::vector<int> group(pending.size());
    for (int worker = 0; worker < index_.workers(); ++worker) {
      start(worker, pending, group);
      const int end = index_.worker_begin[at(worker) + 1];
      for (int id = index_.worker_begin[at(worker)]; id < end; ++id) {
        const Op& op = index_.ops[at(id)];
        if (op.kind == OpKind::tied_all_reduce) {
          reduce_tied(id, worker, pending, group);
        } else {
          step(id, pending[pp::index(op.stage)], group[pp::index(op.stage)]);
        }
      }
    }
  }

 private:
  /// Backwards per update of the worker's stages: all of them, or the asynchronous number.
  void start(int worker, std::vector<Pending>& pending, std::vector<int>& group) {
    for (const int s : index_.stages_of_worker[at(worker)]) {
      pending[at(s)] = {};
      group[at(s)] = set_.synchronous ? 0 : set_.backwards_per_update;
    }
    if (!set_.synchronous) return;
    for (const Op& op : set_.workers[at(worker)]) group[pp::index(op.stage)] += completes_backward(op.kind);
  }

  void step(int id, Pending& pending, int group) {
    const Op& op = index_.ops[at(id)];
    if (completes_backward(op.kind)) {
      if (!set_.synchronous && pending.backwards == group) {
        refuse(id, to_text(Op{OpKind::update, op.stage, 0}) + " of the backward before it must come first");
      }
      ++pending.backwards;
    } else if (op.kind == OpKind::all_reduce) {
      check_finished(id, pending, group);
      pending.reduced = true;
    } else if (op.kind == OpKind::update) {
      check_finished(id, pending, group);
      check_reduced(id, op.stage, pending);
      check_tied(id, number(op.stage), pending.tied);
      pending = {};
    }
  }

  void reduce_tied(int id, int worker, std::vector<Pending>& pending, const std::vector<int>& group) {
    const std::vector<int>& stages = index_.stages_of_worker[at(worker)];
    for (const int s : index_.tied[at(index_.ops[at(id)].micro_batch)]) {
      if (std::ranges::find(stages, s) == stages.end()) continue;
      Pending& stage = pending[at(s)];
      check_finished(id, stage, group[at(s)]);
      check_reduced(id, StageId{s}, stage);
      ++stage.tied;
    }
  }

  /// U of a stage comes after the ARg of all its groups, of which `reduced` have been listed.
  void check_tied(int id, int stage, int reduced) {
    const auto shares = [&](const std::vector<int>& group) { return std::ranges::count(group, stage) > 0; };
    if (reduced == std::ranges::count_if(index_.tied, shares)) return;
    refuse(id, "the ARg of every group that shares a parameter of stage " + std::to_string(stage) +
                   " must come first");
  }

  void check_reduced(int id, StageId stage, const Pending& pending) {
    if (partners_[pp::index(stage)] > 1 && !pending.reduced)
      refuse(id, to_text(Op{OpKind::all_reduce, stage, 0}) + " must come first");
  }

  void check_finished(int id, const Pending& pending, int group) {
    if (pending.backwards == group) return;
    refuse(id, "it comes after " + std::to_string(pending.backwards) + " of the " + std::to_string(group) +
                   " backwards that it needs; move it behind the last");
  }

  [[noreturn]] void refuse(int id, const std::string& text) {
    throw Error(ErrorKind::data, locate(index_, id) + ": " + text);
  }

  const ProgramSet& set_;
  const ProgramIndex& index_;
  const std::vector<int> partners_;  ///< per stage
};

void check_size(const ProgramSet& set) {
  std::int64_t operations = 0;
  for (const Program& program : set.workers) operations += std::ssize(program);
  if (operations <= kOperationLimit) return;
  throw Error(ErrorKind::data, "the programs hold " + std::to_string(operations) +
                                   " operations; the limit is " + std::to_string(kOperationLimit) +
                                   ", use fewer micro-batches or stages");
}

[[noreturn]] void refuse(const ProgramIndex& index, int id, const std::string& text) {
  throw Error(ErrorKind::data, locate(index, id) + ": " + text);
}

[[noreturn]] void missing(OpKind kind, int stage, int micro_batch, const std::string& remedy) {
  throw Error(ErrorKind::data, "stage " + std::to_string(stage) + ": " +
                                   to_text(Op{kind, StageId{stage}, micro_batch}) + " is missing; " + remedy);
}

bool is_swap(OpKind kind) { return kind == OpKind::load || kind == OpKind::evict; }

/// Empty: the rule set knows the kind.
std::string_view refusal(RuleSet rules, OpKind kind) {
  switch (rules) {
    case RuleSet::standard:
    case RuleSet::served: return is_swap(kind) ? "weights stay on their worker here; leave it out" : "";
    case RuleSet::forward_only:
      return kind == OpKind::forward ? "" : "an inference program has forwards only; leave it out";
    case RuleSet::clocked:
      return kind == OpKind::forward || kind == OpKind::backward || kind == OpKind::update
                 ? ""
                 : "a clocked program has F, B and U only; leave it out";
    case RuleSet::swapped: return "";
  }
  return "";
}

}  // namespace

void validate(const ProgramSet& set) {
  check_size(set);
  if (set.backwards_per_update < 1) {
    throw Error(ErrorKind::data, "backwards_per_update = " + std::to_string(set.backwards_per_update) +
                                     "; an update needs at least one backward");
  }
  const ProgramIndex index = index_programs(set);
  check_updates(set, index);
  check_progress(index);
  OrderCheck(set, index).run();
  check_clock_order(set, index);
  check_residency(index);
}

double peak_in_flight(std::span<const Op> program, int chunks_per_worker) {
  std::set<std::pair<StageId, int>> completed;
  for (const Op& op : program) {
    if (completes_backward(op.kind)) completed.emplace(op.stage, op.micro_batch);
  }
  std::set<std::pair<StageId, int>> held;
  std::size_t peak = 0;
  for (const Op& op : program) {
    const std::pair unit(op.stage, op.micro_batch);
    if (op.kind == OpKind::forward) {
      held.insert(unit);
      peak = std::max(peak, held.size());
      if (!completed.contains(unit)) held.erase(unit);
    }
    if (completes_backward(op.kind)) held.erase(unit);
  }
  return static_cast<double>(peak) / chunks_per_worker;
}

void check_in_flight(const ProgramSet& set, std::span<const double> limits, int chunks_per_worker) {
  for (std::size_t w = 0; w < set.workers.size(); ++w) {
    const double limit = limits[limits.size() == 1 ? 0 : w];
    const double peak = peak_in_flight(set.workers[w], chunks_per_worker);
    if (peak <= limit) continue;
    std::ostringstream text;
    text << "worker " << w << ": holds up to " << peak << " micro-batches in flight, its limit is " << limit
         << "; use a smaller window or another schedule";
    throw Error(ErrorKind::data, text.str());
  }
}

void check_kinds(const ProgramSet& set, const ProgramIndex& index) {
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    const std::string_view text = refusal(set.rules, index.ops[at(id)].kind);
    if (!text.empty()) refuse(index, id, std::string(text));
  }
}

void check_clock_steps(const ProgramSet& set, const ProgramIndex& index) {
  const int last = index.stages - 1;
  const int frames = set.micro_batches - last;
  if (frames < 1) {
    throw Error(ErrorKind::data, "micro_batches = " + std::to_string(set.micro_batches) +
                                     " clock steps; a frame needs " + std::to_string(index.stages) +
                                     " to pass " + std::to_string(index.stages) + " stages");
  }
  for (int s = 0; s <= last; ++s) {
    if (index.workers_of_stage[at(s)] > 1) {
      throw Error(ErrorKind::data, "stage " + std::to_string(s) + " has " +
                                       std::to_string(index.workers_of_stage[at(s)]) +
                                       " workers; a clocked stage has one");
    }
    const auto check = [&](Slot slot, OpKind kind, int begin) {
      for (int t = 0; t < set.micro_batches; ++t) {
        const int found = index.first(slot, s, t);
        const bool wanted = t >= begin && t < frames + s;
        if (wanted && found == kNone)
          missing(kind, s, t, "every stage runs at every step while frames pass it");
        if (!wanted && found != kNone)
          refuse(index, found, "no frame or gradient passes the stage at this step");
      }
    };
    check(Slot::forward, OpKind::forward, s);
    check(Slot::backward, OpKind::backward, std::max(s, 2 * last - s));
  }
}

void check_clock_order(const ProgramSet& set, const ProgramIndex& index) {
  if (set.rules != RuleSet::clocked) return;
  for (int worker = 0; worker < index.workers(); ++worker) {
    bool updated = true;
    for (int id = index.worker_begin[at(worker)]; id < index.worker_begin[at(worker) + 1]; ++id) {
      const OpKind kind = index.ops[at(id)].kind;
      if (kind == OpKind::forward && !updated) {
        refuse(index, id,
               to_text(Op{OpKind::update, index.ops[at(id)].stage, 0}) + " of the step before must come first");
      }
      if (kind != OpKind::forward) updated = kind == OpKind::update;
    }
  }
}

void check_swapped_backwards(const ProgramIndex& index) {
  for (int s = 0; s < index.stages; ++s) {
    for (int m = 0; m < index.micro_batches; ++m) {
      const int backward = index.first(Slot::backward, s, m);
      if (backward == kNone) missing(OpKind::backward, s, m, "list it, or I and W, on one worker of the stage");
      const bool split = index.ops[at(backward)].kind == OpKind::input_gradient;
      const int weight = index.first(Slot::weight_gradient, s, m);
      if (split && weight == kNone)
        missing(OpKind::weight_gradient, s, m, "I leaves the weight gradient to it");
      if (!split && weight != kNone)
        refuse(index, weight, "B computes this gradient already; list B alone, or I and W");
      if (index.local(Slot::forward, backward) == kNone && index.local(Slot::recompute, backward) == kNone) {
        refuse(index, backward,
               "its forward ran on another worker; recompute it here with " +
                   to_text(Op{OpKind::recompute, StageId{s}, m}));
      }
    }
  }
}

void check_residency(const ProgramIndex& index) {
  if (index.rules != RuleSet::swapped) return;
  std::vector<bool> loaded(at(index.stages)), has_gradient(at(index.stages));
  for (int worker = 0; worker < index.workers(); ++worker) {
    loaded.assign(at(index.stages), false);
    has_gradient.assign(at(index.stages), false);
    for (int id = index.worker_begin[at(worker)]; id < index.worker_begin[at(worker) + 1]; ++id) {
      const Op& op = index.ops[at(id)];
      const auto here = loaded[pp::index(op.stage)];
      const std::string stage = std::to_string(number(op.stage));
      if (op.kind == OpKind::load && here)
        refuse(index, id, "the weights of stage " + stage + " are loaded already");
      if (op.kind != OpKind::load && !here)
        refuse(index, id, "the weights of stage " + stage + " are not loaded; L" + stage + " must come first");
      if (op.kind == OpKind::evict && has_gradient[pp::index(op.stage)])
        refuse(index, id, "the gradients of stage " + stage + " would be lost; U" + stage + " must come first");
      if (completes_backward(op.kind) || op.kind == OpKind::update)
        has_gradient[pp::index(op.stage)] = op.kind != OpKind::update;
      loaded[pp::index(op.stage)] = op.kind != OpKind::evict;
    }
    for (int s = 0; s < index.stages; ++s) {
      if (!loaded[at(s)]) continue;
      throw Error(ErrorKind::data, "worker " + std::to_string(worker) + ": the weights of stage " +
                                       std::to_string(s) + " stay loaded; end with E" + std::to_string(s));
    }
  }
}

}  // namespace pp::plan
