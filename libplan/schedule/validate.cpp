#include "libplan/schedule/validate.h"

#include <algorithm>

#include "libplan/schedule/completeness.h"
#include "libplan/schedule/program_index.h"
#include "libplan/schedule/progress.h"
#include "libplan/schedule/rule_sets.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

/// What a worker has done for a stage since its last U.
struct Pending {
  int backwards = 0;
  bool reduced = false;
};

/// A group is the backwards from one U to the next: AR comes after the last of them, U after AR. Counts are
/// complete already, so a U or AR that comes too early is what can be wrong.
class OrderCheck {
 public:
  OrderCheck(const ProgramSet& set, const ProgramIndex& index)
      : set_(set), index_(index), partners_(partners_of_stages(set, index)) {}

  void run() {
    std::vector<Pending> pending(ProgramIndex::at(index_.stages));
    std::vector<int> group(pending.size());
    for (int worker = 0; worker < index_.workers(); ++worker) {
      start(worker, pending, group);
      const int end = index_.worker_begin[ProgramIndex::at(worker) + 1];
      for (int id = index_.worker_begin[ProgramIndex::at(worker)]; id < end; ++id) {
        const std::size_t stage = pp::index(index_.ops[ProgramIndex::at(id)].stage);
        step(id, pending[stage], group[stage]);
      }
    }
  }

 private:
  /// Backwards per update of the worker's stages: all of them, or the asynchronous number.
  void start(int worker, std::vector<Pending>& pending, std::vector<int>& group) {
    for (const int s : index_.stages_of_worker[ProgramIndex::at(worker)]) {
      pending[ProgramIndex::at(s)] = {};
      group[ProgramIndex::at(s)] = set_.synchronous ? 0 : set_.backwards_per_update;
    }
    if (!set_.synchronous) return;
    for (const Op& op : set_.workers[ProgramIndex::at(worker)])
      group[pp::index(op.stage)] += completes_backward(op.kind);
  }

  void step(int id, Pending& pending, int group) {
    const Op& op = index_.ops[ProgramIndex::at(id)];
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
      if (partners_[pp::index(op.stage)] > 1 && !pending.reduced) {
        refuse(id, to_text(Op{OpKind::all_reduce, op.stage, 0}) + " must come first");
      }
      pending = {};
    }
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

}  // namespace

void validate(const ProgramSet& set) {
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
  int in_flight = 0;
  int peak = 0;
  for (const Op& op : program) {
    if (op.kind == OpKind::forward) peak = std::max(peak, ++in_flight);
    if (completes_backward(op.kind)) --in_flight;
  }
  return static_cast<double>(peak) / chunks_per_worker;
}

}  // namespace pp::plan
