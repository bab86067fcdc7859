// The event simulator: start and end of every operation and message of a set of programs under given costs;
// step time, bubble, memory over time. Exact and deterministic: ties are broken by (time, kind, stage,
// micro-batch, worker). O(operations log operations).
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "libplan/schedule/program.h"
#include "libplan/schedule/program_index.h"
#include "libplan/schedule/validate.h"
#include "libprofile/core/index.h"
#include "libprofile/core/link.h"
#include "libprofile/core/units.h"

namespace pp::plan {

/// Of the times of one stage; they vary from operation to operation, each by itself.
struct StageSpread {
  Spread forward, backward, input_gradient, weight_gradient, recompute, update;
  bool operator==(const StageSpread&) const = default;
};

/// Of the first F, B and W of a stage after its update, which find weights and gradients outside the caches.
struct FirstTimes {
  Seconds forward{}, backward{}, weight_gradient{};
  bool operator==(const FirstTimes&) const = default;
};

/// Costs and sizes of one stage on one of its workers, per micro-batch unless noted.
struct StageCosts {
  Seconds forward{}, backward{}, input_gradient{}, weight_gradient{}, recompute{};
  std::optional<FirstTimes> first = std::nullopt;  ///< nothing: they take what the others take
  Seconds all_reduce{};                            ///< per AR, without overlap
  /// The part of it that at most is over when the last backward is: its buckets are complete in turn
  /// (cost/stage_cost.h). Nothing: all that fits into the backward.
  std::optional<Seconds> hideable = std::nullopt;
  Seconds update{};      ///< per U
  Seconds load{};        ///< per L: the stage's weights from the host to the device
  Seconds load_state{};  ///< per L whose weights are updated before their E: the optimizer's state, besides
  Seconds evict{};       ///< per such E: both of them back; other weights are dropped
  Bytes weights, gradients, optimizer;  ///< of one version
  Bytes frozen;                         ///< the part of `weights` that every version shares
  Bytes saved;                          ///< activations kept from F to B (or W), stage input excluded
  Bytes again;        ///< layers that run again inside B: the largest one's activations, there during B
  Bytes again_split;  ///< and with a split backward: what all of them save again, from I to the end of W
  Bytes input;        ///< boundary input kept from F to B
  /// What weight gradients need, kept from the end of I to the end of W in place of the above; nothing: all of
  /// it stays, and output gradients are free.
  std::optional<Bytes> waiting = std::nullopt;
  Bytes boundary;   ///< messages between workers, beyond `input`
  Bytes workspace;  ///< peak of an operation above what is saved
  int versions =
      1;  ///< weight versions the policy keeps; an asynchronous walk counts more where the programs need them
  std::optional<StageSpread> spread = std::nullopt;  ///< nothing: not known, the times above are all there is
  /// Held from the first operation to the last.
  Bytes fixed() const {
    return weights + (weights - frozen) * (versions - 1) + gradients + optimizer + boundary;
  }
  bool operator==(const StageCosts&) const = default;
};

/// A tensor flow between two stages: forward from -> to, gradient to -> from. Sizes per micro-batch. Sent once
/// per consuming stage, straight from worker to worker; nothing is sent within a worker. No gradient tensors:
/// no gradient message.
struct StageEdge {
  StageId from{}, to{};
  Bytes activation, gradient;
  int activation_tensors = 1, gradient_tensors = 1;
  bool operator==(const StageEdge&) const = default;
};

/// An AR waits for the others of its stage and then lasts all_reduce seconds (`blocking`), or what is left of
/// them when the reduction began behind the last backward (`overlapped`): max(0, all_reduce - o_ar * B) after
/// equal backwards, or with `hideable` in place of B where it is less. Reductions of one worker follow each
/// other. `free`: no waiting, no time.
enum class AllReduceMode { overlapped, blocking, free };

/// How micro-batches of unequal sizes compare with what stages and edges say, one entry each; empty: all equal.
struct MicroBatchScale {
  std::vector<double> times, bytes;
  bool empty() const { return times.empty(); }
};

/// Workers that one link joins.
struct LinkLevel {
  Link link{};
  std::vector<int> groups{};  ///< per worker; those of one group are joined. Empty: all of them
};

struct SimulationInput {
  ProgramSet programs;
  std::vector<StageCosts> stages;
  std::vector<StageEdge>
      edges;  ///< empty: the chain, one tensor without bytes; else the order of the chain still holds
  std::vector<Seconds>
      tied_all_reduce;  ///< per group of programs.tied: one ARg, without overlap; empty: no time
  /// Innermost first: two workers are joined by the first level that has them in one group. Empty: free and
  /// instant. A transfer is requested when its producer ends and starts when both ports are free, in the order
  /// of requests.
  std::vector<LinkLevel> links;
  std::vector<double>
      micro_batch_scale;  ///< per micro-batch: times relative to `stages` (unequal sizes); empty: 1
  std::vector<double> micro_batch_bytes;  ///< the same of bytes; empty: as the times
  AllReduceMode all_reduce = AllReduceMode::overlapped;
  double all_reduce_overlap = 1.0;  ///< o_ar: the share of the last backward, or of `hideable`, that hides it
  /// Of what L and E copy, the share that the device's own work hides; 0: it does the copying itself, in turn.
  double swap_overlap = 0;
  /// Asynchronous: a micro-batch in flight keeps the weights of its forward, as it does under every weight
  /// policy but `latest` and `predict`.
  bool keeps_versions = true;
  /// By operation, worker after worker and each in its list's order: seconds without messages, in place of what
  /// `stages` says. Empty: that.
  std::vector<double> own_times;
  /// Per worker, the network card behind which it sits; node n has those from n * cards_per_node on. A message
  /// between two nodes occupies one direction of each card as it does the ports, so the workers behind one take
  /// turns. All-reduces over several nodes occupy both directions of the cards of all their workers as long as
  /// they take, one after the other; messages pass first. Empty: there are no cards.
  std::vector<int> cards;
  int cards_per_node = 1;
  /// Per worker, the piece of hardware that computes for it. Workers of one take turns there, an operation at a
  /// time, in the order in which they could begin (all-reduces and copies take no turn): so a GPU that is busy
  /// with one worker's kernels leaves nothing to another's. Empty: each has its own.
  std::vector<int> hardware;

  /// With links. O(levels).
  const Link& link(int from, int to) const {
    const auto joins = [&](const LinkLevel& level) {
      return level.groups.empty() || level.groups[at(from)] == level.groups[at(to)];
    };
    const auto level = std::ranges::find_if(links, joins);
    return level == links.end() ? links.back().link : level->link;
  }
};

inline const std::vector<double>& bytes_scale(const SimulationInput& input) {
  return input.micro_batch_bytes.empty() ? input.micro_batch_scale : input.micro_batch_bytes;
}

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

/// Peak bytes of one worker by part; `peak` is the largest sum at one time, which is at most the sum of the
/// parts.
struct MemoryPeak {
  Bytes weights, gradients, optimizer, versions, saved, boundary, workspace;
  Bytes peak;
  bool operator==(const MemoryPeak&) const = default;
};

struct SimulationResult {
  Seconds makespan{};
  double bubble_fraction = 0;          ///< 1 - busy/(workers*makespan)
  std::vector<Seconds> busy;           ///< per worker: the sum of its operations, AR and U included
  std::vector<OpEvent> ops;            ///< by start time, then worker and its list
  std::vector<MessageEvent> messages;  ///< by start time
  std::vector<MemoryPeak> memory;      ///< per worker
};

/// `unsorted`: no operations, and messages in the order of their requests.
enum class Events { sorted, unsorted };

/// Placement and the completeness of F, B, I, W, R are checked as in validate(); U and AR may be missing
/// (published figures leave them out). Throws pp::Error (data) for those, and with the deadlock report when the
/// programs cannot finish.
SimulationResult simulate(const SimulationInput& input, Events events = Events::sorted);

/// Every operation of worker w takes 1 / speeds[w] times as long; messages and all-reduces take what they did.
SimulationInput at_speeds(SimulationInput input, std::span<const double> speeds);

/// `copies` steps one after the other: copy i runs micro-batches m + i * micro_batches. Synchronous programs
/// only.
SimulationInput chained(const SimulationInput& input, int copies);

/// simulate() with unsorted events, and chained_period().
struct ChainedSimulation {
  SimulationResult first;  ///< the step that no other is in front of
  Seconds period{};
};
/// From one run of the chain where no message waits for one of a later step, as is usual.
ChainedSimulation simulate_chained(const SimulationInput& input);

/// Seconds per step when steps follow each other without a barrier: with T(n) of n chained copies T(3) - T(2),
/// or (T(12) - T(6)) / 6 where micro-batches differ in size; no less than the work of the busiest worker.
/// Synchronous programs only.
Seconds chained_period(const SimulationInput& input);

/// Seconds per micro-batch of an asynchronous set in steady state: the largest (E(2J/3) - E(J/3)) / (J/3) of
/// its stages, E(n) = latest end of a backward of the stage among the first n micro-batches. Of all stages, as
/// those in front of the slowest run ahead of it until their windows are full. J must be a multiple of 3; with
/// J = 3k*lcm(replicas) both ends of the middle third stand at the same place of the round robin. Where they do
/// not, the largest over every place that the stage with most replicas, r, has: never too small, and too large
/// by at most about 3r/J of it. Throws pp::Error (internal) otherwise.
Seconds steady_period(const SimulationInput& input);

/// Throws pp::Error: internal when a vector of `input` does not fit its programs, data for bytes that cannot be
/// added up and for what index_programs() refuses.
ProgramIndex index_simulation(const SimulationInput& input);

}  // namespace pp::plan
