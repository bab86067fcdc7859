#include "libplan/schedule/completeness.h"

#include <algorithm>
#include <cstdint>

#include "libplan/schedule/validate.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

[[noreturn]] void fail_incomplete(const std::string& message) { throw Error(ErrorKind::data, message); }

std::string text(OpKind kind, int stage, int micro_batch) {
  return to_text(Op{kind, StageId{stage}, micro_batch});
}

[[noreturn]] void refuse_missing(const ProgramSet& set, int stage, int micro_batch) {
  const auto& workers = set.stage_workers[at(stage)];
  fail_incomplete("stage " + std::to_string(stage) + ": " + text(OpKind::forward, stage, micro_batch) +
                  " is missing; list it on worker " + std::to_string(number(workers.front())) +
                  (workers.size() > 1 ? " or another of the stage's" : ""));
}

/// F once, or on every worker of the stage.
void check_forward(const ProgramSet& set, const ProgramIndex& index, int stage, int micro_batch) {
  int listed = 0;
  for (int id = index.first(Slot::forward, stage, micro_batch); id != kNone; id = index.following(id)) ++listed;
  if (listed == 1 || listed == index.workers_of_stage[at(stage)]) return;
  if (listed == 0) refuse_missing(set, stage, micro_batch);
  const auto& workers = set.stage_workers[at(stage)];
  const std::string forward = text(OpKind::forward, stage, micro_batch);
  fail_incomplete("stage " + std::to_string(stage) + ": " + forward + " is listed by " +
                  std::to_string(listed) + " of " + std::to_string(workers.size()) +
                  " workers; list it on one, or on all to split the micro-batch");
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
    fail_incomplete(worker + ": " + text(OpKind::backward, stage, op.micro_batch) + " is missing; " +
                    to_text(op) + " needs it, or I and W, on the same worker");
  }
  if (split) {
    fail_incomplete(worker + ": " + text(OpKind::weight_gradient, stage, op.micro_batch) + " is missing; " +
                    to_text(index.ops[at(backward)]) + " leaves the weight gradient to it");
  }
  fail_incomplete(locate(index, weight) + ": " + to_text(index.ops[at(backward)]) +
                  " computes this gradient already; list B alone, or I and W");
}

/// How often a worker lists a stage's AR and U, and how many backwards it completes there (B or W).
struct StageCounts {
  int backwards = 0;
  int all_reduces = 0;
  int updates = 0;
};

std::string times(int count) { return std::to_string(count) + (count == 1 ? " time" : " times"); }

/// How often a worker must list U.
int updates_of(const ProgramSet& set, const StageCounts& counts) {
  if (set.rules == RuleSet::forward_only) return 0;
  if (set.rules == RuleSet::swapped) return counts.backwards > 0 ? 1 : 0;
  return set.synchronous ? 1 : counts.backwards / set.backwards_per_update;
}

/// The same in words.
std::string update_rule(const ProgramSet& set, int backwards) {
  if (set.rules == RuleSet::forward_only) return "an inference program has forwards only";
  if (set.rules == RuleSet::swapped) return "the worker of the stage's backwards lists it once";
  if (set.synchronous) return "a synchronous program lists it once";
  const int per_update = set.backwards_per_update;
  const std::string each =
      per_update == 1 ? "each of the " : "every " + std::to_string(per_update) + " of the ";
  return "it follows " + each + std::to_string(backwards) + " backwards";
}

/// `partners`: workers of the stage that add to its gradient.
void check_counts(const ProgramSet& set, int worker, int stage, StageCounts counts, int partners) {
  int updates = updates_of(set, counts);
  if (set.stretch && partners > 1 && counts.updates == updates - 1) --updates;
  const int all_reduces = partners > 1 ? updates : 0;
  if (counts.updates == updates && counts.all_reduces == all_reduces) return;

  const std::string where = "worker " + std::to_string(worker) + ": ";
  const std::string update = text(OpKind::update, stage, 0);
  const std::string reduce = text(OpKind::all_reduce, stage, 0);
  if (counts.updates != updates) {
    fail_incomplete(where + update + " is listed " + times(counts.updates) + "; " +
                    update_rule(set, counts.backwards));
  }
  if (partners == 1) {
    fail_incomplete(where + reduce + " is listed, but " +
                    (set.rules == RuleSet::served ? "a parameter server joins the gradients"
                                                  : "stage " + std::to_string(stage) + " has one worker") +
                    "; leave it out");
  }
  fail_incomplete(where + reduce + " is listed " + times(counts.all_reduces) + "; stage " +
                  std::to_string(stage) + " has " + std::to_string(partners) + " workers, so each " + update +
                  " needs one before it");
}

/// In a synchronous step every worker of a tied group lists its ARg once.
void check_tied_reductions(const ProgramSet& set, const ProgramIndex& index) {
  for (int w = 0; w < index.workers(); ++w) {
    const std::vector<int>& stages = index.stages_of_worker[at(w)];
    for (std::size_t k = 0; k < index.tied.size(); ++k) {
      const auto joins = std::ranges::find_first_of(stages, index.tied[k]) != stages.end();
      const Op wanted{OpKind::tied_all_reduce, StageId{0}, static_cast<int>(k)};
      const auto listed = std::ranges::count_if(set.workers[at(w)], [&](const Op& op) {
        return op.kind == wanted.kind && op.micro_batch == wanted.micro_batch;
      });
      if (!joins || listed == 1) continue;
      fail_incomplete("worker " + std::to_string(w) + ": " + to_text(wanted) + " is listed " +
                      times(static_cast<int>(listed)) +
                      "; every worker of the group's stages lists it once, in front of its first U");
    }
  }
}

/// The k-th all-reduce needs a partner on every worker of the stage.
void check_groups(const ProgramIndex& index) {
  for (int g = 0; g < index.groups(); ++g) {
    const int first = index.group_members[at(index.group_begin[at(g)])];
    const int last = index.group_members[at(index.group_begin[at(g) + 1] - 1)];
    if (last != kNone) continue;
    fail_incomplete(locate(index, first) + ": not every worker of stage " +
                    std::to_string(number(index.ops[at(first)].stage)) +
                    " lists as many all-reduces; give all the same number");
  }
}

}  // namespace

std::vector<int> partners_of_stages(const ProgramSet& set, const ProgramIndex& index) {
  if (set.rules == RuleSet::served) return std::vector<int>(at(index.stages), 1);
  if (set.rules != RuleSet::swapped) return index.workers_of_stage;
  std::vector<int> partners(at(index.stages), 0);
  std::vector<int> counted(at(index.stages), kNone);  // the last worker counted
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    const Op& op = index.ops[at(id)];
    int& last = counted[pp::index(op.stage)];
    if (!completes_backward(op.kind) || last == index.worker_of[at(id)]) continue;
    last = index.worker_of[at(id)];
    ++partners[pp::index(op.stage)];
  }
  return partners;
}

void check_table_size(const ProgramSet& set, const ProgramIndex& index) {
  const std::int64_t wanted = std::int64_t{index.stages} * index.micro_batches;
  const std::int64_t found = std::ranges::count(index.ops, OpKind::forward, &Op::kind);
  if (found >= wanted || set.rules == RuleSet::clocked) return;
  std::vector<std::int64_t> listed;  // in the order of the table
  for (const Op& op : index.ops) {
    if (op.kind == OpKind::forward)
      listed.push_back(number(op.stage) * std::int64_t{index.micro_batches} + op.micro_batch);
  }
  std::ranges::sort(listed);
  std::int64_t hole = 0;
  for (const std::int64_t place : listed) {
    if (place > hole) break;
    hole = place + 1;
  }
  refuse_missing(set, static_cast<int>(hole / index.micro_batches),
                 static_cast<int>(hole % index.micro_batches));
}

void check_micro_batches(const ProgramSet& set, const ProgramIndex& index) {
  check_kinds(set, index);
  if (set.rules == RuleSet::clocked) return check_clock_steps(set, index);
  for (int s = 0; s < index.stages; ++s) {
    for (int m = 0; m < index.micro_batches; ++m) check_forward(set, index, s, m);
  }
  if (set.rules == RuleSet::swapped) return check_swapped_backwards(index);
  if (set.rules == RuleSet::forward_only) return;
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    const Op& op = index.ops[at(id)];
    if (op.kind == OpKind::forward) {
      check_backward(index, id);
    } else if (has_micro_batch(op.kind) && index.local(Slot::forward, id) == kNone) {
      const int owner = index.first(Slot::forward, number(op.stage), op.micro_batch);
      fail_incomplete(locate(index, id) + ": " + to_text(index.ops[at(owner)]) + " runs on worker " +
                      std::to_string(index.worker_of[at(owner)]) +
                      "; a micro-batch stays with the worker of its forward");
    }
  }
}

void check_updates(const ProgramSet& set, const ProgramIndex& index) {
  const std::vector<int> partners = partners_of_stages(set, index);
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
    for (const int s : stages) check_counts(set, w, s, counts[at(s)], partners[at(s)]);
  }
  check_tied_reductions(set, index);
  check_groups(index);
}

}  // namespace pp::plan
