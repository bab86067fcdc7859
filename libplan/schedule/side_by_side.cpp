// Whole pipelines side by side: data parallelism over a schedule that places its stages itself.
#include <algorithm>
#include <set>

#include "libplan/schedule/generators.h"

namespace pp::plan {
namespace {

/// Of the stages that the program updates and does not reduce, ascending.
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
