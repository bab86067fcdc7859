// Schedules whose step ends with a flush, and forward-only pipelines (a batch in micro-batches, and token by
// token).
//
// GPipe (Huang et al., NeurIPS'19) and its two ends: naive model parallelism, one micro-batch at a time through
// the stages. All forwards, then all backwards: in the same order 0..M-1, so that gradients are added as
// single-device accumulation adds them, or last to first as in the paper's figure and torchgpipe.
//
// 1F1B with a flush: Megatron's non-interleaved schedule, PipeDream-Flush; with a window of one on a single
// replicated stage, data parallelism (2.2). Narayanan et al., SC'21.
//
// DAPPLE's early-backward schedules PA and PB (Fan et al., PPoPP'21): 1F1B with windows that memory limits,
// every micro-batch of a replicated stage split over its replicas. Unlimited and unreplicated, PA is 1f1b and
// PB is 1f1b with the wide window.
//
// Chimera with direct concatenation (Li and Hoefler, SC'21): two copies of the model run through the same
// workers in opposite directions. Forward doubling and backward halving are not generated.
#include <algorithm>
#include <utility>

#include "libplan/schedule/generators.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

enum class BackwardOrder { ascending, descending };

Schedule all_forwards_first(const ScheduleRequest& request, BackwardOrder order) {
  return replicated_schedule(request, [&](const StageReplica& replica) {
    Program program;
    const auto append = [&](OpKind kind, int i) {
      program.push_back({kind, replica.stage, replica.rank + i * replica.replicas});
    };
    for (int i = 0; i < replica.count; ++i) append(OpKind::forward, i);
    for (int i = 0; i < replica.count; ++i)
      append(OpKind::backward, order == BackwardOrder::ascending ? i : replica.count - 1 - i);
    return program;
  });
}

/// K forwards, then one backward and one forward in turn, then the remaining backwards: never more than
/// `window` in flight. The replica runs micro-batches q, q + r, q + 2r, ...
Program one_and_one(const StageReplica& replica, int window) {
  const int warm_up = std::min(window, replica.count) - 1;
  Program program;
  const auto append = [&](OpKind kind, int i) {
    program.push_back({kind, replica.stage, replica.rank + i * replica.replicas});
  };
  for (int i = 0; i < warm_up; ++i) append(OpKind::forward, i);
  for (int i = 0; i < replica.count; ++i) {
    if (i + warm_up < replica.count) append(OpKind::forward, i + warm_up);
    append(OpKind::backward, i);
  }
  return program;
}

/// Micro-batches that stage `s` can hold at once.
int limit_of(const ScheduleRequest& request, std::size_t s) {
  if (request.in_flight_limits.empty()) return request.micro_batches;
  const std::size_t stages = request.replicas.size();
  if (request.in_flight_limits.size() != 1 && request.in_flight_limits.size() != stages) {
    refuse(request, std::to_string(request.in_flight_limits.size()) + " in-flight limits for " +
                        std::to_string(stages) + " stages; give one for all, or one per stage");
  }
  const int limit = request.in_flight_limits[request.in_flight_limits.size() == 1 ? 0 : s];
  if (limit < 1) {
    refuse(request, "stage " + std::to_string(s) +
                        " cannot hold one micro-batch; lower the micro-batch size or recompute");
  }
  return limit;
}

/// k forwards, then B and F in turn, then the remaining B, over all micro-batches.
Program early_backward(StageId stage, int k, int micro_batches) {
  Program program;
  for (int m = 0; m < k; ++m) program.push_back({OpKind::forward, stage, m});
  for (int m = 0; m < micro_batches; ++m) {
    program.push_back({OpKind::backward, stage, m});
    if (m + k < micro_batches) program.push_back({OpKind::forward, stage, m + k});
  }
  return program;
}

/// `published(stages_left)`: the paper's window. A window that grew from one stage to the next would deadlock.
template <class Window>
Schedule dapple(const ScheduleRequest& request, Window published) {
  Schedule schedule{replicated_placement(request.replicas), {}};
  const int stages = static_cast<int>(request.replicas.size());
  int k = request.micro_batches;
  for (int s = 0; s < stages; ++s) {
    const auto place = at(s);
    k = std::min({k, published(stages - s), limit_of(request, place)});
    Program program = early_backward(StageId{s}, k, request.micro_batches);
    append_update(program, StageId{s}, request.replicas[place]);
    schedule.workers.insert(schedule.workers.end(), at(request.replicas[place]), {program, std::nullopt});
  }
  return schedule;
}

Schedule forwards(const ScheduleRequest& request, int micro_batches) {
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    for (int q = 0; q < request.replicas[s]; ++q) {
      Program program;
      for (int m = q; m < micro_batches; m += request.replicas[s])
        program.push_back({OpKind::forward, StageId{static_cast<int>(s)}, m});
      schedule.workers.push_back({std::move(program), std::nullopt});
    }
  }
  return schedule;
}

}  // namespace

Schedule generate_gpipe(const ScheduleRequest& request) {
  return all_forwards_first(request, BackwardOrder::ascending);
}

Schedule generate_gpipe_reverse(const ScheduleRequest& request) {
  return all_forwards_first(request, BackwardOrder::descending);
}

Schedule generate_naive(const ScheduleRequest& request) {
  if (request.micro_batches != 1)
    refuse(request, "needs micro_batches = 1, found " + std::to_string(request.micro_batches));
  return all_forwards_first(request, BackwardOrder::ascending);
}

Schedule generate_one_forward_one_backward(const ScheduleRequest& request) {
  const std::vector<int> window = request_windows(request);
  return replicated_schedule(
      request, [&](const StageReplica& replica) { return one_and_one(replica, window[index(replica.stage)]); });
}

Schedule generate_data_parallel(const ScheduleRequest& request) {
  if (request.replicas.size() != 1) {
    refuse(request, std::to_string(request.replicas.size()) +
                        " stages; every replica holds the whole model, give one stage with all replicas");
  }
  return replicated_schedule(request, [](const StageReplica& replica) { return one_and_one(replica, 1); });
}

Schedule generate_dapple_pa(const ScheduleRequest& request) {
  return dapple(request, [](int stages_left) { return stages_left; });
}

Schedule generate_dapple_pb(const ScheduleRequest& request) {
  return dapple(request, [](int stages_left) { return 2 * stages_left - 1; });
}

Schedule generate_chimera(const ScheduleRequest& request) {
  const int k = static_cast<int>(request.replicas.size());
  if (k % 2 != 0) refuse(request, "workers = " + std::to_string(k) + " is odd");
  require_multiple(request, k);

  Schedule schedule;
  std::vector<std::vector<std::pair<int, Op>>> slots(at(k));  // per worker: slot, operation
  for (int s = 0; s < k; ++s) {
    schedule.stage_workers.push_back({WorkerId{std::min(s, k - 1 - s)}, WorkerId{std::max(s, k - 1 - s)}});
    for (int m = 0; m < request.micro_batches; ++m) {
      const int place = m % k;  // in its unit of K micro-batches; the first half goes down, the second up
      const bool down = place < k / 2;
      const int start = 2 * (m - place) + 2 * (place % (k / 2));
      auto& worker = slots[at(down ? s : k - 1 - s)];
      worker.push_back({start + s, {OpKind::forward, StageId{s}, m}});
      worker.push_back({start + 2 * k - 1 - s, {OpKind::backward, StageId{s}, m}});
    }
  }
  for (int r = 0; r < k; ++r) {
    auto& worker = slots[at(r)];
    std::ranges::sort(worker, {}, [](const auto& entry) { return entry.first; });
    Program program;
    for (const auto& [slot, op] : worker) program.push_back(op);
    append_updates(program, {StageId{r}, StageId{k - 1 - r}}, 2);
    schedule.workers.push_back({std::move(program), std::nullopt});
  }
  return schedule;
}

Schedule generate_inference(const ScheduleRequest& request) { return forwards(request, request.micro_batches); }

Schedule generate_generation(const ScheduleRequest& request) {
  if (request.token_count < 1) {
    refuse(request, "tokens = " + std::to_string(request.token_count) + "; give at least 1");
  }
  return forwards(request, request.micro_batches * request.token_count);
}

}  // namespace pp::plan
