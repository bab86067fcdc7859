#include "libplan/schedule/validate.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "libplan/schedule/completeness.h"
#include "libplan/schedule/limits.h"
#include "libplan/schedule/program_index.h"
#include "libplan/schedule/progress.h"
#include "libplan/schedule/rule_sets.h"
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

}  // namespace pp::plan
