// The generators behind schedule_table(), one file per family, and what they share. Everybody else calls
// make_schedule(), which has checked the request against the row before.
#pragma once

#include <string>
#include <vector>

#include "libplan/schedule/schedule.h"

namespace pp::plan {

Schedule generate_naive(const ScheduleRequest& request);
Schedule generate_data_parallel(const ScheduleRequest& request);
Schedule generate_gpipe(const ScheduleRequest& request);
Schedule generate_gpipe_reverse(const ScheduleRequest& request);
Schedule generate_one_forward_one_backward(const ScheduleRequest& request);
Schedule generate_dapple_pa(const ScheduleRequest& request);
Schedule generate_dapple_pb(const ScheduleRequest& request);
Schedule generate_interleaved(const ScheduleRequest& request);
Schedule generate_looped_bfs(const ScheduleRequest& request);
Schedule generate_zb_h1(const ScheduleRequest& request);
Schedule generate_zb_h2(const ScheduleRequest& request);
Schedule generate_zb_v(const ScheduleRequest& request);
Schedule generate_dualpipe_v(const ScheduleRequest& request);
Schedule generate_chimera(const ScheduleRequest& request);
Schedule generate_pipedream(const ScheduleRequest& request);
Schedule generate_partime(const ScheduleRequest& request);
Schedule generate_parameter_server(const ScheduleRequest& request);
Schedule generate_asynchronous_replicas(const ScheduleRequest& request);
Schedule generate_inference(const ScheduleRequest& request);
Schedule generate_generation(const ScheduleRequest& request);
Schedule generate_harmony_pp(const ScheduleRequest& request);
Schedule generate_harmony_dp(const ScheduleRequest& request);

/// Throws pp::Error (usage): `schedule NAME: MESSAGE`.
[[noreturn]] void refuse(const ScheduleRequest& request, const std::string& message);

/// Throws pp::Error (usage) for what the row excludes: no workers, no micro-batches, replicas, chunks,
/// policies, recomputation.
void check_request(const ScheduleRequest& request, const ScheduleRow& row);

/// `micro_batches` a multiple of `unit`, or a refusal that names the nearest multiples: `micro_batches = 6 is
/// not a multiple of 4 workers; use 4 or 8`, then `alternative`.
void require_multiple(const ScheduleRequest& request, int unit, const std::string& alternative = "");

/// The window of each stage by the request's rule. Throws pp::Error (usage) when an explicit list does not have
/// one positive number per stage.
std::vector<int> request_windows(const ScheduleRequest& request);

/// Stage s on worker s % workers, s < workers * chunks.
std::vector<std::vector<WorkerId>> looped_placement(int workers, int chunks);
/// Two stages per worker: stage s on worker s going down, on 2*workers-1-s coming back.
std::vector<std::vector<WorkerId>> v_placement(int workers);

/// One worker's list for the stage it holds, micro-batches in its own numbers.
struct StageReplica {
  StageId stage{};
  int rank = 0;  ///< q of replicas
  int replicas = 1;
  int count = 0;  ///< its micro-batches: rank, rank + replicas, ...
};
/// One stage per worker, micro-batches round robin: make(replica) gives the list without AR and U, which end
/// every list.
template <class Make>
Schedule replicated_schedule(const ScheduleRequest& request, Make make);

/// The end of a step on a worker: every AR in ascending stage order, then every U. `workers`: how many hold
/// each stage.
void append_updates(Program& program, std::vector<StageId> stages, int workers);
/// For a worker of one stage.
void append_update(Program& program, StageId stage, int replicas);

/// `pipelines` of `one` side by side: micro-batch m of the k-th is m * pipelines + k of all. Workers are
/// numbered place by place, replica by replica. In front of the first update of a worker come the all-reduces
/// that it does not have yet.
Schedule side_by_side(const Schedule& one, int pipelines);

/// Puts R directly before B or I of the micro-batches that the request recomputes.
void insert_recompute(const ScheduleRequest& request, Schedule& schedule);

template <class Make>
Schedule replicated_schedule(const ScheduleRequest& request, Make make) {
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    for (int q = 0; q < request.replicas[s]; ++q) {
      const int replicas = request.replicas[s];
      const int count = request.micro_batches > q ? (request.micro_batches - q - 1) / replicas + 1 : 0;
      const StageReplica replica{StageId{static_cast<int>(s)}, q, replicas, count};
      Program program = make(replica);
      append_update(program, replica.stage, replicas);
      schedule.workers.push_back({std::move(program), std::nullopt});
    }
  }
  return schedule;
}

}  // namespace pp::plan
