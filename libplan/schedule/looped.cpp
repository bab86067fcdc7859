// Several stages per worker, going round: interleaved 1F1B (Narayanan et al., SC'21) and breadth-first looping
// (Lamy-Poirier, MLSys'23; 4.2). Stage s is on worker s % K.
#include <algorithm>

#include "libplan/schedule/generators.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

int workers_of(const ScheduleRequest& request) { return static_cast<int>(request.replicas.size()); }

void append_own_updates(const ScheduleRequest& request, int worker, Program& program) {
  std::vector<StageId> stages;
  for (int c = 0; c < chunks_of(request); ++c) stages.push_back(StageId{c * workers_of(request) + worker});
  append_updates(program, std::move(stages), 1);
}

/// Several chunks, or the schedule that is meant for one.
void require_chunks(const ScheduleRequest& request, const std::string& schedule_of_one) {
  if (chunks_of(request) == 1) refuse(request, "chunks_per_worker = 1; use schedule " + schedule_of_one);
}

/// Micro-batches that pass a chunk before the next chunk's turn: the classic rule is one per worker. Larger
/// groups are legal if the last one is whole or still fills the pipeline, fewer micro-batches than workers only
/// as one group; other groups can deadlock.
int group_of(const ScheduleRequest& request) {
  const int k = workers_of(request);
  const int m = request.micro_batches;
  if (request.group == 0) {
    require_multiple(request, k, ", or group = " + std::to_string(m));
    return k;
  }
  const int group = request.group;
  const std::string found = "group = " + std::to_string(group);
  if (group > m)
    refuse(request,
           found + " is more than micro_batches = " + std::to_string(m) + "; use " + std::to_string(m));
  if (group < k && group != m) {
    refuse(request,
           found + " is less than " + std::to_string(k) + " workers; use " + std::to_string(std::min(k, m)));
  }
  if (m % group != 0 && m % group < k) {
    refuse(request, found + " leaves a last group of " + std::to_string(m % group) +
                        " micro-batches, less than " + std::to_string(k) + " workers; use " +
                        std::to_string(m));
  }
  return group;
}

struct Turn {
  int micro_batch;
  int chunk;
};

/// The order in which a worker's chunks take micro-batches forward.
std::vector<Turn> forward_order(int micro_batches, int chunks, int group) {
  std::vector<Turn> order;
  for (int begin = 0; begin < micro_batches; begin += group) {
    for (int c = 0; c < chunks; ++c) {
      for (int m = begin; m < std::min(begin + group, micro_batches); ++m) order.push_back({m, c});
    }
  }
  return order;
}

}  // namespace

Schedule generate_interleaved(const ScheduleRequest& request) {
  require_chunks(request, "1f1b");
  const int k = workers_of(request);
  const int v = chunks_of(request);
  const int group = group_of(request);
  const std::vector<Turn> order = forward_order(request.micro_batches, v, group);
  const int count = static_cast<int>(order.size());
  Schedule schedule{looped_placement(k, v), {}};
  for (int r = 0; r < k; ++r) {
    Program program;
    const auto forward = [&](int i) {
      const auto [m, c] = order[at(i)];
      program.push_back({OpKind::forward, StageId{c * k + r}, m});
    };
    const auto backward = [&](int i) {
      const auto [m, c] = order[at(i)];
      program.push_back({OpKind::backward, StageId{(v - 1 - c) * k + r}, m});
    };
    const int warm_up = std::min(2 * (k - r - 1) + (v - 1) * group, count);
    for (int i = 0; i < warm_up; ++i) forward(i);
    for (int i = 0; i < count; ++i) {
      if (warm_up + i < count) forward(warm_up + i);
      backward(i);
    }
    append_own_updates(request, r, program);
    schedule.workers.push_back({std::move(program), std::nullopt});
  }
  return schedule;
}

Schedule generate_looped_bfs(const ScheduleRequest& request) {
  require_chunks(request, "gpipe-reverse");
  const int k = workers_of(request);
  const int v = chunks_of(request);
  Schedule schedule{looped_placement(k, v), {}};
  for (int r = 0; r < k; ++r) {
    Program program;
    for (int c = 0; c < v; ++c) {
      for (int m = 0; m < request.micro_batches; ++m)
        program.push_back({OpKind::forward, StageId{c * k + r}, m});
    }
    for (int c = v; c-- > 0;) {
      for (int m = request.micro_batches; m-- > 0;)
        program.push_back({OpKind::backward, StageId{c * k + r}, m});
    }
    append_own_updates(request, r, program);
    schedule.workers.push_back({std::move(program), std::nullopt});
  }
  return schedule;
}

}  // namespace pp::plan
