// Who holds which stage and runs which micro-batch, and the end of a step that follows from it; whole pipelines
// side by side: data parallelism over a schedule that places its stages itself.
#include "libplan/schedule/placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "libplan/schedule/generators.h"
#include "libprofile/core/error.h"

namespace pp::plan {

namespace {

class OwnerWalk {
 public:
  explicit OwnerWalk(const ProgramSet& set) : set_(set) {}

  void run() {
    for (std::size_t w = 0; w < set_.workers.size(); ++w) {
      last_.clear();
      for (std::size_t i = 0; i < set_.workers[w].size(); ++i) {
        worker_ = w, position_ = i;
        const OpKind kind = op().kind;
        if (kind == OpKind::forward && replicas() > 1) take();
        if (!set_.synchronous && (kind == OpKind::forward || completes_backward(kind))) take_turn();
      }
    }
  }

 private:
  const Op& op() const { return set_.workers[worker_][position_]; }
  int replicas() const { return static_cast<int>(set_.stage_workers[index(op().stage)].size()); }

  void take() {
    const auto [owner, added] = owners_.try_emplace({op().stage, op().micro_batch}, worker_);
    if (added) return;
    refuse("worker " + std::to_string(owner->second) +
           " runs this micro-batch; replicas that split one cannot be run: list it on one worker");
  }

  /// After micro-batch m of a stage comes m + replicas; a worker of several stages keeps count for each.
  void take_turn() {
    const auto [last, first] = last_.try_emplace({op().kind, op().stage}, op().micro_batch);
    if (first && op().micro_batch < replicas()) return;
    const int expected = first ? op().micro_batch % replicas() : last->second + replicas();
    last->second = op().micro_batch;
    if (op().micro_batch == expected) return;
    refuse("workers of a stream take turns, in ascending order: " +
           to_text(Op{op().kind, op().stage, expected}) + " comes here");
  }

  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorKind::data, "worker " + std::to_string(worker_) + ", operation " +
                                     std::to_string(position_) + " (" + to_text(op()) + "): " + message);
  }

  const ProgramSet& set_;
  std::size_t worker_ = 0;
  std::size_t position_ = 0;
  std::map<std::pair<StageId, int>, std::size_t> owners_;  ///< of stages with several workers
  std::map<std::pair<OpKind, StageId>, int> last_;         ///< of the worker in hand: its last micro-batch
};

/// The stages that the program updates and does not reduce, ascending.
Program missing_reductions(const Program& program) {
  std::set<StageId> stages;
  for (const Op& op : program) {
    if (op.kind == OpKind::update) stages.insert(op.stage);
  }
  for (const Op& op : program) {
    if (op.kind == OpKind::all_reduce) stages.erase(op.stage);
  }
  Program reductions;
  for (const StageId stage : stages) reductions.push_back({OpKind::all_reduce, stage});
  return reductions;
}

Program share_of(const Program& one, int pipelines, int pipeline) {
  Program program = one;
  for (Op& op : program) {
    if (has_micro_batch(op.kind)) op.micro_batch = op.micro_batch * pipelines + pipeline;
  }
  const Program reductions = missing_reductions(one);
  const auto first_update = std::ranges::find(program, OpKind::update, &Op::kind);
  program.insert(first_update, reductions.begin(), reductions.end());
  return program;
}

}  // namespace

std::vector<std::vector<WorkerId>> replicated_placement(std::span<const int> replicas) {
  std::vector<std::vector<WorkerId>> stages;
  int worker = 0;
  for (const int count : replicas) {
    auto& workers = stages.emplace_back();
    for (int q = 0; q < count; ++q) workers.push_back(WorkerId{worker++});
  }
  return stages;
}

std::vector<std::vector<WorkerId>> looped_placement(int workers, int chunks) {
  std::vector<std::vector<WorkerId>> stages;
  for (int s = 0; s < workers * chunks; ++s) stages.push_back({WorkerId{s % workers}});
  return stages;
}

std::vector<std::vector<WorkerId>> v_placement(int workers) {
  std::vector<std::vector<WorkerId>> stages;
  for (int s = 0; s < 2 * workers; ++s) stages.push_back({WorkerId{std::min(s, 2 * workers - 1 - s)}});
  return stages;
}

void append_updates(Program& program, std::vector<StageId> stages, int workers) {
  std::ranges::sort(stages);
  if (workers > 1) {
    for (const StageId stage : stages) program.push_back({OpKind::all_reduce, stage, 0});
  }
  for (const StageId stage : stages) program.push_back({OpKind::update, stage, 0});
}

void append_update(Program& program, StageId stage, int replicas) {
  append_updates(program, {stage}, replicas);
}

void check_owners(const ProgramSet& set) { OwnerWalk(set).run(); }

Schedule side_by_side(const Schedule& one, int pipelines) {
  Schedule all;
  for (const std::vector<WorkerId>& workers : one.stage_workers) {
    std::vector<WorkerId>& copies = all.stage_workers.emplace_back();
    for (const WorkerId worker : workers) {
      for (int k = 0; k < pipelines; ++k) copies.push_back(WorkerId{number(worker) * pipelines + k});
    }
  }
  for (const WorkerProgram& worker : one.workers) {
    for (int k = 0; k < pipelines; ++k)
      all.workers.push_back({share_of(worker.program, pipelines, k), std::nullopt});
  }
  return all;
}

}  // namespace pp::plan
