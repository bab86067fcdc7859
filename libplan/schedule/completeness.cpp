#include "libplan/schedule/completeness.h"

#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorKind::data, message); }

std::size_t at(int i) { return ProgramIndex::at(i); }

std::string text(OpKind kind, int stage, int micro_batch) {
  return to_text(Op{kind, StageId{stage}, micro_batch});
}

/// F once, or on every worker of the stage.
void check_forward(const ProgramSet& set, const ProgramIndex& index, int stage, int micro_batch) {
  int listed = 0;
  for (int id = index.first(Slot::forward, stage, micro_batch); id != kNone; id = index.following(id)) ++listed;
  if (listed == 1 || listed == index.workers_of_stage[at(stage)]) return;
  const auto& workers = set.stage_workers[at(stage)];
  const std::string forward = text(OpKind::forward, stage, micro_batch);
  if (listed == 0) {
    fail("stage " + std::to_string(stage) + ": " + forward + " is missing; list it on worker " +
         std::to_string(number(workers.front())) + (workers.size() > 1 ? " or another of the stage's" : ""));
  }
  fail("stage " + std::to_string(stage) + ": " + forward + " is listed by " + std::to_string(listed) + " of " +
       std::to_string(workers.size()) + " workers; list it on one, or on all to split the micro-batch");
}

/// The owner of a forward has its backward, whole or in halves.
void check_backward(const ProgramIndex& index, int forward) {
  const Op& op = index.ops[at(forward)];
  const int stage = number(op.stage);
  const int backward = index.local(Slot::backward, forward);
  const int weight = index.local(Slot::weight_gradient, forward);
  const bool split = backward != kNone && index.ops[at(backward)].kind == OpKind::input_gradient;
  if (backward != kNone && split == (weight != kNone)) return;
  const std::string worker = "worker " + std::to_string(index.worker_of[at(forward)]);
  if (backward == kNone) {
    fail(worker + ": " + text(OpKind::backward, stage, op.micro_batch) + " is missing; " + to_text(op) +
         " needs it, or I and W, on the same worker");
  }
  if (split) {
    fail(worker + ": " + text(OpKind::weight_gradient, stage, op.micro_batch) + " is missing; " +
         to_text(index.ops[at(backward)]) + " leaves the weight gradient to it");
  }
  fail(locate(index, weight) + ": " + to_text(index.ops[at(backward)]) +
       " computes this gradient already; list B alone, or I and W");
}

/// How often a worker lists a stage's AR and U, and how many backwards it completes there (B or W).
struct StageCounts {
  int backwards = 0;
  int all_reduces = 0;
  int updates = 0;
};

std::string times(int count) { return std::to_string(count) + (count == 1 ? " time" : " times"); }

/// How often U must be listed, in words.
std::string update_rule(const ProgramSet& set, int backwards) {
  if (set.synchronous) return "a synchronous program lists it once";
  const int per_update = set.backwards_per_update;
  const std::string each =
      per_update == 1 ? "each of the " : "every " + std::to_string(per_update) + " of the ";
  return "it follows " + each + std::to_string(backwards) + " backwards";
}

void check_counts(const ProgramSet& set, int worker, int stage, StageCounts counts) {
  const std::size_t workers = set.stage_workers[at(stage)].size();
  const int updates = set.synchronous ? 1 : counts.backwards / set.backwards_per_update;
  const int all_reduces = workers > 1 ? updates : 0;
  if (counts.updates == updates && counts.all_reduces == all_reduces) return;

  const std::string where = "worker " + std::to_string(worker) + ": ";
  const std::string update = text(OpKind::update, stage, 0);
  const std::string reduce = text(OpKind::all_reduce, stage, 0);
  if (counts.updates != updates) {
    fail(where + update + " is listed " + times(counts.updates) + "; " + update_rule(set, counts.backwards));
  }
  if (workers == 1) {
    fail(where + reduce + " is listed, but stage " + std::to_string(stage) + " has one worker; leave it out");
  }
  fail(where + reduce + " is listed " + times(counts.all_reduces) + "; stage " + std::to_string(stage) +
       " has " + std::to_string(workers) + " workers, so each " + update + " needs one before it");
}

/// The k-th all-reduce needs a partner on every worker of the stage.
void check_groups(const ProgramIndex& index) {
  for (int g = 0; g < index.groups(); ++g) {
    const int first = index.group_members[at(index.group_begin[at(g)])];
    const int last = index.group_members[at(index.group_begin[at(g) + 1] - 1)];
    if (last != kNone) continue;
    fail(locate(index, first) + ": not every worker of stage " +
         std::to_string(number(index.ops[at(first)].stage)) +
         " lists as many all-reduces; give all the same number");
  }
}

}  // namespace

void check_micro_batches(const ProgramSet& set, const ProgramIndex& index) {
  for (int s = 0; s < index.stages; ++s) {
    for (int m = 0; m < index.micro_batches; ++m) check_forward(set, index, s, m);
  }
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    const Op& op = index.ops[at(id)];
    if (op.kind == OpKind::forward) {
      check_backward(index, id);
    } else if (has_micro_batch(op.kind) && index.local(Slot::forward, id) == kNone) {
      const int owner = index.first(Slot::forward, number(op.stage), op.micro_batch);
      fail(locate(index, id) + ": " + to_text(index.ops[at(owner)]) + " runs on worker " +
           std::to_string(index.worker_of[at(owner)]) + "; a micro-batch stays with the worker of its forward");
    }
  }
}

void check_updates(const ProgramSet& set, const ProgramIndex& index) {
  std::vector<StageCounts> counts(at(index.stages));
  for (int w = 0; w < index.workers(); ++w) {
    const std::vector<int>& stages = index.stages_of_worker[at(w)];
    for (const int s : stages) counts[at(s)] = {};
    for (const Op& op : set.workers[at(w)]) {
      StageCounts& stage = counts[pp::index(op.stage)];
      if (completes_backward(op.kind)) ++stage.backwards;
      if (op.kind == OpKind::all_reduce) ++stage.all_reduces;
      if (op.kind == OpKind::update) ++stage.updates;
    }
    for (const int s : stages) check_counts(set, w, s, counts[at(s)]);
  }
  check_groups(index);
}

}  // namespace pp::plan
