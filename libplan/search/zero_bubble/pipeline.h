// A straight pipeline as the zero-bubble search sees it: durations and transfers by stage and micro-batch.
#pragma once

#include <cstddef>
#include <vector>

#include "libplan/search/zero_bubble/order.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

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
