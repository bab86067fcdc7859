// A straight pipeline as the zero-bubble search sees it, durations and transfers by stage and micro-batch, and
// the orders that it searches: which of F, I and W a worker runs next. Micro-batches need not be named, because
// on every stage each kind runs 0, 1, 2, ... (so gradients are added in that order).
#pragma once

#include <cstddef>
#include <vector>

#include "libplan/schedule/validate.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// One worker: only F, I and W, each once per micro-batch; the k-th of a kind is micro-batch k.
using WorkerOrder = std::vector<OpKind>;
/// Per worker; worker s runs stage s.
using Order = std::vector<WorkerOrder>;

/// How many forwards a worker may have run while its first w weight gradients are done, w = 0..M-1: what is
/// held from F to W is bounded by it. At least w + 1.
using Room = std::vector<int>;

/// Every I after its F, every W after its I, and never more forwards than the room allows.
bool is_valid(const WorkerOrder& order, const Room& room);

/// The one rule behind 1F1B with split backwards, ZB-H1 and ZB-H2: `window` forwards, then for each micro-batch
/// I, a W once `weight_delay` micro-batches are through, and the next F. Qi et al., "Zero Bubble Pipeline
/// Parallelism" (ICLR 2024), section 2.
struct HandRule {
  int window = 1;
  int weight_delay = 0;
};

/// Where the room is too small for the rule, W runs earlier. The result is always valid for the room, which has
/// one entry per micro-batch.
WorkerOrder apply(const HandRule& rule, const Room& room);

/// The programs of `order`, each ending with its U. `placement` gives everything but the lists.
ProgramSet to_programs(const Order& order, ProgramSet placement);

/// A tensor from another stage, activation or gradient; `delay[m]` seconds after the end of its producer.
struct Inlet {
  std::size_t from = 0;
  std::vector<double> delay;
};

/// Seconds by micro-batch, but for the update.
struct StageTimes {
  std::vector<double> forward, input_gradient, weight_gradient;
  double update = 0;
  std::vector<Inlet> activations, gradients;

  const std::vector<double>& of(OpKind kind) const;
};

struct Pipeline {
  int micro_batches = 1;
  std::vector<StageTimes> stages;

  int size() const { return static_cast<int>(stages.size()); }
};

/// `input.programs` holds any valid orders of this pipeline. Throws what simulate() throws for its parts.
Pipeline make_pipeline(const SimulationInput& input);

/// [stage][micro-batch]: seconds from the end of F to the arrival of the gradient that I needs, when nothing
/// waits.
std::vector<std::vector<double>> round_trips(const Pipeline& pipeline);

/// In seconds; what no order with the given room can beat.
struct OrderBounds {
  double period = 0;
  double makespan = 0;
};

/// Two steps of a worker never overlap, so the period is at least the least time from its first F to its U: all
/// its work and what the round trip of micro-batch 0 leaves idle when the first `room[0]` forwards have run; or
/// a chain of micro-batches that wait for each other's W for lack of room. The makespan is at least that time
/// behind the earliest first F.
OrderBounds order_bounds(const Pipeline& pipeline, const std::vector<Room>& rooms);

}  // namespace pp::plan
