// The event simulator (planning.md 2.12, schedules.md 1.5): start and end of every operation and message of a set of
// programs under given costs; step time, bubble, memory over time. Exact and deterministic: ties are broken by
// (time, kind, stage, micro-batch, worker). O(operations log operations).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/schedule/program.h"
#include "libplan/schedule/validate.h"
#include "libprofile/core/units.h"

namespace pp::plan {

/// Costs and sizes of one stage on one of its workers, per micro-batch unless noted.
struct StageCosts {
  Seconds forward{}, backward{}, input_gradient{}, weight_gradient{}, recompute{};
  Seconds all_reduce{};  ///< per step, without overlap
  Seconds update{};      ///< per step
  Bytes weights, gradients, optimizer;   ///< of one version
  Bytes saved;        ///< activations kept from F to B (or W), stage input excluded
  Bytes input;        ///< boundary input kept from F to B
  Bytes boundary;     ///< transfer buffers: 2*(in + out)
  Bytes workspace;    ///< transient peak
  int versions = 1;   ///< weight versions alive at the peak
  bool operator==(const StageCosts&) const = default;
};

/// A tensor flow between two stages: forward from -> to, gradient to -> from. Sizes per micro-batch.
struct StageEdge {
  StageId from{}, to{};
  Bytes activation, gradient;
  int activation_tensors = 1, gradient_tensors = 1;
  bool operator==(const StageEdge&) const = default;
};

struct Link {
  BytesPerSecond bandwidth{0};  ///< 0: infinite
  Seconds latency{};
};

enum class AllReduceMode { overlapped, blocking, free };

struct SimulationInput {
  ProgramSet programs;
  std::vector<StageCosts> stages;
  std::vector<StageEdge> edges;           ///< empty: the chain, without bytes
  std::vector<std::vector<Link>> links;   ///< [from worker][to worker]; empty: free and instant
  std::vector<double> micro_batch_scale;  ///< per micro-batch: times and bytes relative to `stages` (unequal sizes); empty: 1
  AllReduceMode all_reduce = AllReduceMode::overlapped;
  double all_reduce_overlap = 1.0;        ///< o_ar: the share of the last backward that hides all-reduce
};

struct OpEvent {
  WorkerId worker{};
  Op op;
  Seconds start{}, end{};
  bool operator==(const OpEvent&) const = default;
};

struct MessageEvent {
  WorkerId from{}, to{};
  Op producer;
  Bytes bytes;
  Seconds start{}, end{};  ///< port occupied; arrival is end + latency
  bool operator==(const MessageEvent&) const = default;
};

/// Peak bytes of one worker by part; `peak` is the largest sum at one time, which is at most the sum of the parts.
struct MemoryPeak {
  Bytes weights, gradients, optimizer, versions, saved, boundary, workspace;
  Bytes peak;
  bool operator==(const MemoryPeak&) const = default;
};

struct SimulationResult {
  Seconds makespan{};
  double bubble_fraction = 0;  ///< 1 - busy/(workers*makespan)
  std::vector<Seconds> busy;   ///< per worker
  std::vector<OpEvent> ops;    ///< by start time
  std::vector<MessageEvent> messages;
  std::vector<MemoryPeak> memory;  ///< per worker
};

/// Throws pp::Error (data) with the deadlock report when the programs cannot finish.
SimulationResult simulate(const SimulationInput& input);

/// Seconds per step when steps follow each other without a barrier: T(n+1) - T(n) of n chained copies, n = 2
/// (schedules.md 1.5). Synchronous programs only.
Seconds chained_period(const SimulationInput& input);

/// Seconds per micro-batch of an asynchronous set in steady state: (E(2J/3) - E(J/3)) / (J/3), E(n) = latest end of a
/// stage-0 backward among the first n micro-batches. The programs must be expanded to J = 3k*lcm(replicas) micro-batches.
Seconds steady_period(const SimulationInput& input);

/// Chrome trace JSON (one row per worker, one per link direction), for Perfetto or chrome://tracing.
std::string chrome_trace(const SimulationResult& result);

}  // namespace pp::plan
