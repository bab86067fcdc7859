// Checks of a schedule's request, what is legal but worse than people expect, and recomputation as a pass over
// the lists.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/generators.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

std::string text(std::int64_t number) { return std::to_string(number); }

void check_counts(const ScheduleRequest& request) {
  if (request.replicas.empty()) refuse(request, "no stages; give the replicas of at least one");
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    if (request.replicas[s] < 1) {
      refuse(request, "stage " + std::to_string(s) + " has " + text(request.replicas[s]) +
                          " replicas; give it at least 1");
    }
  }
  if (request.micro_batches < 1) {
    refuse(request, "micro_batches = " + text(request.micro_batches) + "; give at least 1");
  }
  const auto workers = std::accumulate(request.replicas.begin(), request.replicas.end(), std::int64_t{0});
  if (workers > kOperationLimit) {
    refuse(request, text(workers) + " workers exceed the limit of " + text(kOperationLimit) +
                        "; give fewer replicas or stages");
  }
}

void check_replication(const ScheduleRequest& request, Replication allowed) {
  const int first = request.replicas.front();
  for (std::size_t s = 0; s < request.replicas.size(); ++s) {
    const int found = request.replicas[s];
    if (allowed == Replication::none && found != 1) {
      refuse(request,
             "stage " + std::to_string(s) + " has " + text(found) + " replicas; it runs 1 worker per stage");
    }
    if ((allowed == Replication::equal || allowed == Replication::pipelines) && found != first) {
      refuse(request, "stage " + std::to_string(s) + " has " + text(found) + " replicas, stage 0 has " +
                          text(first) + "; give every stage the same number");
    }
  }
}

/// Whole pipelines run equally many micro-batches.
void check_pipelines(const ScheduleRequest& request) {
  const int pipelines = request.replicas.front(), m = request.micro_batches;
  if (m % pipelines == 0) return;
  const int below = m / pipelines * pipelines;
  refuse(request, "micro_batches = " + text(m) + " is not a multiple of its " + text(pipelines) +
                      " replicas; use " + (below > 0 ? text(below) + " or " : "") + text(below + pipelines));
}

void check_chunks(const ScheduleRequest& request, Chunks allowed) {
  const int chunks = chunks_of(request);
  const std::string found = "chunks_per_worker = " + text(chunks);
  if (allowed == Chunks::one && chunks != 1) refuse(request, found + "; it runs 1 stage per worker");
  if (allowed == Chunks::two && chunks != 2) refuse(request, found + "; it runs 2 stages per worker");
  if (chunks < 1) refuse(request, found + "; give at least 1");
}

void check_policy(const ScheduleRequest& request, const ScheduleRow& row) {
  if (!request.weight_policy || std::ranges::count(row.policies, *request.weight_policy) > 0) return;
  std::string allowed;
  for (const WeightPolicy policy : row.policies)
    allowed.append(allowed.empty() ? "" : ", ").append(name_of(policy));
  refuse(request, "weight policy " + std::string(name_of(*request.weight_policy)) +
                      " does not go with it; use " + allowed);
}

void check_recompute(const ScheduleRequest& request, const ScheduleRow& row) {
  const std::size_t stages = request.replicas.size() * at(chunks_of(request));
  const std::size_t found = request.recompute.size();
  if (found > 1 && found != stages) {
    refuse(request, std::to_string(found) + " recompute modes for " + std::to_string(stages) +
                        " stages; give one for all, or one per stage");
  }
  for (const Recompute mode : request.recompute) {
    if (mode == Recompute::never) continue;
    if (row.rules != RuleSet::standard && row.rules != RuleSet::served)
      refuse(request, "recompute is not a choice here; leave it at never");
    if (!row.synchronous && mode == Recompute::except_last) {
      refuse(request, "recompute except_last needs a last micro-batch, a stream has none; use always or never");
    }
  }
}

bool needs_activations(OpKind kind) { return kind == OpKind::backward || kind == OpKind::input_gradient; }

/// The actual number of micro-batches decides which one is the last, not a configured one.
bool recomputes(Recompute mode, int micro_batch, int micro_batches) {
  return mode == Recompute::always || (mode == Recompute::except_last && micro_batch != micro_batches - 1);
}

Program with_recompute(const ScheduleRequest& request, const Program& program) {
  Program result;
  for (const Op& op : program) {
    const Recompute mode = request.recompute[request.recompute.size() == 1 ? 0 : index(op.stage)];
    if (needs_activations(op.kind) && recomputes(mode, op.micro_batch, request.micro_batches))
      result.push_back({OpKind::recompute, op.stage, op.micro_batch});
    result.push_back(op);
  }
  return result;
}

}  // namespace

void refuse(const ScheduleRequest& request, const std::string& message) {
  throw Error(ErrorKind::usage, "schedule " + request.name + ": " + message);
}

int chunks_of(const ScheduleRequest& request) {
  if (request.chunks_per_worker != 0) return request.chunks_per_worker;
  const ScheduleRow& row = require_schedule(request.name);
  return row.chunks == Chunks::one || row.rules == RuleSet::swapped ? 1 : 2;
}

void check_request(const ScheduleRequest& request, const ScheduleRow& row) {
  check_counts(request);
  check_replication(request, row.replication);
  if (row.replication == Replication::pipelines) check_pipelines(request);
  check_chunks(request, row.chunks);
  check_policy(request, row);
  check_recompute(request, row);
}

void require_multiple(const ScheduleRequest& request, int unit, const std::string& alternative) {
  const std::int64_t m = request.micro_batches;
  if (m % unit == 0) return;
  const std::int64_t below = m / unit * unit;
  refuse(request, "micro_batches = " + text(m) + " is not a multiple of " + text(unit) + " workers; use " +
                      (below > 0 ? text(below) + " or " : "") + text(below + unit) + alternative);
}

std::vector<int> request_windows(const ScheduleRequest& request) {
  if (request.window != WindowRule::explicit_list) return windows(request.window, request.replicas);
  if (request.windows.size() != request.replicas.size()) {
    refuse(request, std::to_string(request.windows.size()) + " windows for " +
                        std::to_string(request.replicas.size()) + " stages; give one per stage");
  }
  for (std::size_t s = 0; s < request.windows.size(); ++s) {
    if (request.windows[s] < 1) {
      refuse(request, "stage " + std::to_string(s) + " has a window of " + std::to_string(request.windows[s]) +
                          " micro-batches; give at least 1");
    }
  }
  return request.windows;
}

std::string schedule_warning(const ScheduleRequest& request) {
  const int workers = static_cast<int>(request.replicas.size());
  const int m = request.micro_batches;
  const std::string found =
      "schedule " + request.name + ": micro_batches = " + std::to_string(m) + " is less than ";
  const Filling filling = require_schedule(request.name).filling;
  if (filling == Filling::bubble_free && m < 2 * workers - 1)
    return found + "2*workers-1 = " + std::to_string(2 * workers - 1) + "; the schedule is not bubble-free";
  if (filling == Filling::all_workers && m < workers) {
    const int bubble = (200 * (workers - 1) + m + workers - 1) / (2 * (m + workers - 1));
    return found + std::to_string(workers) + " workers; equal stages are idle " + std::to_string(bubble) +
           " % of the time";
  }
  return "";
}

void insert_recompute(const ScheduleRequest& request, Schedule& schedule) {
  if (request.recompute.empty()) return;
  for (WorkerProgram& worker : schedule.workers) {
    worker.program = with_recompute(request, worker.program);
    if (worker.stream) {
      worker.stream->prologue = with_recompute(request, worker.stream->prologue);
      worker.stream->body = with_recompute(request, worker.stream->body);
    }
  }
}

}  // namespace pp::plan
