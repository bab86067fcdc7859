// Who holds which stage, and the end of a step that follows from it.
#include <algorithm>
#include <numeric>

#include "libplan/schedule/generators.h"

namespace pp::plan {

std::vector<int> first_workers(std::span<const int> replicas) {
  std::vector<int> first(replicas.size() + 1, 0);
  std::partial_sum(replicas.begin(), replicas.end(), first.begin() + 1);
  return first;
}

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

}  // namespace pp::plan
