#include "libplan/price/tied_copies.h"

#include <algorithm>
#include <set>

#include "libprofile/core/index.h"

namespace pp::plan {

std::vector<TiedCopies> tied_copies(const PlanGraph& graph, const std::vector<int>& stage_of) {
  std::vector<TiedCopies> copies;
  for (const std::vector<int>& group : graph.shared) {
    std::set<int> stages;
    for (const int layer : group) stages.insert(stage_of[at(layer)]);
    if (stages.size() > 1) copies.push_back({group.front(), {stages.begin(), stages.end()}});
  }
  return copies;
}

void add_tied_reductions(std::vector<WorkerProgram>& programs, const std::vector<TiedCopies>& copies,
                         const std::vector<std::vector<int>>& stage_workers) {
  std::vector<Program> reductions(programs.size());
  for (std::size_t k = 0; k < copies.size(); ++k) {
    std::set<int> workers;
    for (const int stage : copies[k].stages) {
      const std::vector<int>& replicas = stage_workers[at(stage)];
      workers.insert(replicas.begin(), replicas.end());
    }
    for (const int worker : workers) {
      reductions[at(worker)].push_back({OpKind::tied_all_reduce, StageId{0}, static_cast<int>(k)});
    }
  }
  for (std::size_t w = 0; w < programs.size(); ++w) {
    Program& program = programs[w].program;
    const auto update = std::ranges::find(program, OpKind::update, &Op::kind);
    program.insert(update, reductions[w].begin(), reductions[w].end());
  }
}

}  // namespace pp::plan
