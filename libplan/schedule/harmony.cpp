// Harmony's task lists (Li et al., VLDB'22): weights live on the host; a task brings a pack of stages in, runs
// its whole group of micro-batches and updates just in time. Forward and backward are packed separately; the
// stages are the common refinement of both packings.
#include <algorithm>
#include <set>

#include "libplan/schedule/generators.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Stages [begin, end).
struct Pack {
  int begin = 0;
  int end = 0;
};

/// What runs between two swaps. The first backward task runs its forward itself, the others recompute it from
/// the pack's stashed input.
struct Task {
  Pack pack;
  OpKind first = OpKind::forward;  ///< F or R, ascending
  bool backward = false;
};

/// One worker's list, with weights loaded when a task needs them, or one task earlier, and evicted when the
/// next one does not.
class TaskList {
 public:
  void add(const Task& task, std::vector<int> micro_batches, int partners) {
    tasks_.push_back({task, std::move(micro_batches), partners});
  }

  Program finish(bool prefetch) {
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      evict_all_but(tasks_[t].task.pack);
      load(tasks_[t].task.pack);
      if (prefetch && t + 1 < tasks_.size()) load(tasks_[t + 1].task.pack);
      run(tasks_[t]);
    }
    evict_all_but({0, 0});
    return std::move(program_);
  }

 private:
  struct Entry {
    Task task;
    std::vector<int> micro_batches;
    int partners = 1;
  };

  void run(const Entry& entry) {
    const auto& [task, micro_batches, partners] = entry;
    for (const int m : micro_batches) {
      for (int s = task.pack.begin; s < task.pack.end; ++s) append(task.first, s, m);
      if (!task.backward) continue;
      for (int s = task.pack.end; s-- > task.pack.begin;) append(OpKind::backward, s, m);
    }
    if (!task.backward) return;
    std::vector<StageId> stages;
    for (int s = task.pack.begin; s < task.pack.end; ++s) stages.push_back(StageId{s});
    append_updates(program_, std::move(stages), partners);
  }

  void append(OpKind kind, int stage, int micro_batch = 0) {
    program_.push_back({kind, StageId{stage}, micro_batch});
  }

  void evict_all_but(Pack pack) {
    std::erase_if(resident_, [&](int s) {
      const bool wanted = s >= pack.begin && s < pack.end;
      if (!wanted) append(OpKind::evict, s);
      return !wanted;
    });
  }

  void load(Pack pack) {
    for (int s = pack.begin; s < pack.end; ++s) {
      if (resident_.insert(s).second) append(OpKind::load, s);
    }
  }

  std::vector<Entry> tasks_;
  std::set<int> resident_;  ///< stages
  Program program_;
};

std::vector<Pack> packs_of(const ScheduleRequest& request, const std::vector<int>& sizes, int stages,
                           const std::string& which) {
  std::vector<Pack> packs;
  int begin = 0;
  for (const int size : sizes.empty() ? std::vector<int>(at(stages), 1) : sizes) {
    if (size < 1)
      refuse(request, which + " pack " + std::to_string(packs.size()) + " has no stages; give it at least 1");
    packs.push_back({begin, begin + size});
    begin += size;
  }
  if (begin != stages) {
    refuse(request,
           which + " packs hold " + std::to_string(begin) + " stages; there are " + std::to_string(stages));
  }
  return packs;
}

int stages_of(const ScheduleRequest& request) {
  return static_cast<int>(request.replicas.size()) * chunks_of(request);
}

/// All tasks in the order of execution.
std::vector<Task> tasks_of(const ScheduleRequest& request) {
  const int stages = stages_of(request);
  const std::vector<Pack> backward = packs_of(request, request.backward_packs, stages, "backward");
  std::vector<Task> tasks;
  for (Pack pack : packs_of(request, request.forward_packs, stages, "forward")) {
    pack.end = std::min(pack.end, backward.back().begin);
    if (pack.begin < pack.end) tasks.push_back({pack, OpKind::forward, false});
  }
  for (std::size_t j = backward.size(); j-- > 0;) {
    const bool fused = j + 1 == backward.size();
    tasks.push_back({backward[j], fused ? OpKind::forward : OpKind::recompute, true});
  }
  return tasks;
}

/// Micro-batches `first`, `first` + `step`, ...
std::vector<int> group(const ScheduleRequest& request, int first, int step) {
  std::vector<int> micro_batches;
  for (int m = first; m < request.micro_batches; m += step) micro_batches.push_back(m);
  return micro_batches;
}

Schedule finish(const ScheduleRequest& request, std::vector<std::vector<WorkerId>> placement,
                std::vector<TaskList>& lists) {
  Schedule schedule{std::move(placement), {}};
  for (TaskList& list : lists) schedule.workers.push_back({list.finish(request.prefetch), std::nullopt});
  return schedule;
}

}  // namespace

/// Tasks go round the workers in their order of execution.
Schedule generate_harmony_pp(const ScheduleRequest& request) {
  const int k = static_cast<int>(request.replicas.size());
  std::vector<std::vector<WorkerId>> placement(at(stages_of(request)));
  std::vector<TaskList> lists(at(k));
  const std::vector<int> all = group(request, 0, 1);
  int turn = 0;
  for (const Task& task : tasks_of(request)) {
    const WorkerId worker{turn++ % k};
    lists[index(worker)].add(task, all, 1);
    for (int s = task.pack.begin; s < task.pack.end; ++s) {
      auto& workers = placement[at(s)];
      if (!std::ranges::count(workers, worker)) workers.push_back(worker);
    }
  }
  for (auto& workers : placement) std::ranges::sort(workers);
  return finish(request, std::move(placement), lists);
}

/// Every worker runs all tasks on its own micro-batches; gradients are reduced before each update.
Schedule generate_harmony_dp(const ScheduleRequest& request) {
  const int k = static_cast<int>(request.replicas.size());
  if (request.micro_batches < k) {
    refuse(request, "micro_batches = " + std::to_string(request.micro_batches) + " is less than " +
                        std::to_string(k) + " workers; every worker needs one");
  }
  std::vector<WorkerId> everybody;
  for (int w = 0; w < k; ++w) everybody.push_back(WorkerId{w});
  std::vector<TaskList> lists(at(k));
  for (int w = 0; w < k; ++w) {
    const std::vector<int> own = group(request, w, k);
    for (const Task& task : tasks_of(request)) lists[at(w)].add(task, own, k);
  }
  return finish(request, std::vector(at(stages_of(request)), everybody), lists);
}

}  // namespace pp::plan
