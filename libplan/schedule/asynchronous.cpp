// Schedules without a flush.
//
// Asynchronous 1F1B: PipeDream's 1F1B and 1F1B-RR (Narayanan et al., SOSP'19) and PipeDream-2BW (ICML'21; 5.5).
// A window of forwards, then one forward and one backward in turn for as long as micro-batches come, an update
// after each or after every few backwards. The lists are the same for every weight policy.
//
// PARTIME (Meloni et al., "PARTIME: Scalable and Parallel Processing Over Time with Deep Neural Networks",
// 2022): one frame enters at each clock step, all stages run and update in every step. Indices are steps.
//
// Replicas of the whole model around a parameter server, whose U hands their gradient to it: what the server
// makes of it is the weight policy's. Synchronous (Li et al., OSDI 2014), Downpour SGD (Dean et al., NIPS
// 2012), stale synchronous parallel (Ho et al., NIPS 2013), and Hogwild (Recht et al., NIPS 2011), whose server
// is memory that all share.
#include <algorithm>

#include "libplan/schedule/generators.h"
#include "libplan/schedule/versions.h"

namespace pp::plan {

namespace {

/// `backwards`: from one update to the next.
Stream replica_stream(StageId stage, int q, int replicas, int window, int backwards) {
  Stream stream;
  stream.period = backwards * replicas;
  const auto micro_batch = [&](int i) { return q + i * replicas; };
  for (int i = 0; i + 1 < window; ++i) stream.prologue.push_back({OpKind::forward, stage, micro_batch(i)});
  for (int i = 0; i < backwards; ++i) {
    stream.body.push_back({OpKind::forward, stage, micro_batch(window - 1 + i)});
    stream.body.push_back({OpKind::backward, stage, micro_batch(i)});
  }
  append_update(stream.body, stage, replicas);
  return stream;
}

void check_single_updates(const ScheduleRequest& request) {
  if (request.micro_batches == 1) return;
  refuse(request, "updates after every micro-batch and needs micro_batches = 1, found " +
                      std::to_string(request.micro_batches));
}

/// With fewer micro-batches per update than stages a forward would need a version that does not exist yet
/// (two_buffered), or hold a third one (macrobatch).
void check_aggregation(const ScheduleRequest& request) {
  const int stages = static_cast<int>(request.replicas.size());
  const int replicas = request.replicas.front();
  const int per_replica = request.micro_batches / replicas;
  for (const int other : request.replicas) {
    if (other == replicas) continue;
    refuse(request, "replicas differ from stage to stage; give every stage the same number");
  }
  const std::string found = "micro_batches = " + std::to_string(request.micro_batches) + " per update";
  if (request.micro_batches % replicas != 0) {
    refuse(request, found + " is not a multiple of " + std::to_string(replicas) + " replicas");
  }
  if (per_replica < stages) {
    refuse(request, found + " is less than " + std::to_string(stages) + " stages" +
                        (replicas > 1 ? " times " + std::to_string(replicas) + " replicas" : ""));
  }
}

void check_straight(const ScheduleRequest& request, WeightPolicy policy) {
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    if (request.replicas[s] == 1) continue;
    refuse(request, "stage " + std::to_string(s) + " has " + std::to_string(request.replicas[s]) +
                        " replicas; weight policy " + std::string(name_of(policy)) +
                        " needs a straight pipeline");
  }
}

int replicas_of_one_stage(const ScheduleRequest& request) {
  if (request.replicas.size() == 1) return request.replicas.front();
  refuse(request, std::to_string(request.replicas.size()) +
                      " stages; every replica holds the whole model, give one stage with all replicas");
}

}  // namespace

Schedule generate_pipedream(const ScheduleRequest& request) {
  const ScheduleRow& row = require_schedule(request.name);
  const WeightPolicy policy = request.weight_policy.value_or(row.default_policy());
  if (aggregates(policy)) check_aggregation(request);
  if (!groups(row, policy)) check_single_updates(request);
  if (needs_straight(policy)) check_straight(request, policy);

  const std::vector<int> window = request_windows(request);
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    const int replicas = request.replicas[s];
    const int backwards = std::max(1, request.micro_batches / replicas);
    for (int q = 0; q < replicas; ++q) {
      const StageId stage{static_cast<int>(s)};
      schedule.workers.push_back({{}, replica_stream(stage, q, replicas, window[s], backwards)});
    }
  }
  return schedule;
}

/// Before step 2(N-1)-s no gradient has come back to stage s; from then on it runs F, B, U in every step.
Schedule generate_partime(const ScheduleRequest& request) {
  const int last = static_cast<int>(request.replicas.size()) - 1;
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (int s = 0; s <= last; ++s) {
    const StageId stage{s};
    const int first_backward = std::max(s, 2 * last - s);
    Stream stream;
    for (int t = s; t < first_backward; ++t) stream.prologue.push_back({OpKind::forward, stage, t});
    stream.body = {{OpKind::forward, stage, first_backward},
                   {OpKind::backward, stage, first_backward},
                   {OpKind::update, stage, 0}};
    schedule.workers.push_back({{}, std::move(stream)});
  }
  return schedule;
}

Schedule generate_parameter_server(const ScheduleRequest& request) {
  const int replicas = replicas_of_one_stage(request);
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (int q = 0; q < replicas; ++q) {
    Program program;
    for (int m = q; m < request.micro_batches; m += replicas) {
      program.push_back({OpKind::forward, StageId{0}, m});
      program.push_back({OpKind::backward, StageId{0}, m});
    }
    program.push_back({OpKind::update, StageId{0}, 0});
    schedule.workers.push_back({std::move(program), std::nullopt});
  }
  return schedule;
}

Schedule generate_asynchronous_replicas(const ScheduleRequest& request) {
  const int replicas = replicas_of_one_stage(request);
  if (request.micro_batches != 1) {
    refuse(request, "every mini-batch is pushed by itself and needs micro_batches = 1, found " +
                        std::to_string(request.micro_batches));
  }
  Schedule schedule{replicated_placement(request.replicas), {}};
  for (int q = 0; q < replicas; ++q) {
    Stream stream;
    stream.period = replicas;
    stream.body = {
        {OpKind::forward, StageId{0}, q}, {OpKind::backward, StageId{0}, q}, {OpKind::update, StageId{0}, 0}};
    schedule.workers.push_back({{}, std::move(stream)});
  }
  return schedule;
}

}  // namespace pp::plan
