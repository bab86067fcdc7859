// What layers add up to: the one structure behind the price of a stage, in the searches, in their bounds and in
// the simulator's input.
#pragma once

#include <cstdint>

#include "libplan/cost/graph.h"
#include "libplan/cost/layer_curve.h"

namespace pp::plan {

/// Bytes of trained weights, or of their gradients or state.
struct TrainedBytes {
  double all = 0, experts = 0;  ///< experts: the part of `all` (ExpertGroup)
};

/// How far a device (`own`) and its node (`beside`) are filled with the model: the shares of
/// LayerPrice::crowded and LayerPrice::beside that a stage pays, in [0, 1].
struct Crowding {
  double own = 1, beside = 1;
};

/// Of one micro-batch, on the device of the profile. Times in seconds, the rest in bytes.
struct LayerSums {
  PassTimes times, crowded, beside, first;  ///< as in LayerPrice
  /// The part of times.forward whose gradient returns. The rest, frozen layers in front, may run ahead into
  /// the next step: nothing that it waits for changes.
  double returned = 0;
  std::int64_t parameters = 0;
  std::int64_t frozen = 0;     ///< the part of them that is not trained
  std::int64_t gradients = 0;  ///< one for each use of a trained parameter
  std::int64_t experts = 0;    ///< the part of trained() that experts are (ExpertGroup)
  std::int64_t buffers = 0, saved = 0;
  std::int64_t waiting = 0;  ///< between I and W, of the layers where it was measured
  int unmeasured = 0;        ///< the others

  std::int64_t trained() const { return parameters - frozen; }
  /// By what replicas share: the first part with all members of each, experts with some.
  TrainedBytes trained_bytes() const { return {static_cast<double>(trained()), static_cast<double>(experts)}; }
  /// Of every pass, what a stage takes that is crowded so far.
  PassTimes passes(const Crowding& share) const { return times + share.own * crowded + share.beside * beside; }

  LayerSums& operator+=(const LayerSums& other) {
    times += other.times, crowded += other.crowded, beside += other.beside, first += other.first;
    returned += other.returned;
    parameters += other.parameters, frozen += other.frozen, gradients += other.gradients;
    experts += other.experts;
    buffers += other.buffers, saved += other.saved, waiting += other.waiting;
    unmeasured += other.unmeasured;
    return *this;
  }
  LayerSums& operator-=(const LayerSums& other) {
    times -= other.times, crowded -= other.crowded, beside -= other.beside, first -= other.first;
    returned -= other.returned;
    parameters -= other.parameters, frozen -= other.frozen, gradients -= other.gradients;
    experts -= other.experts;
    buffers -= other.buffers, saved -= other.saved, waiting -= other.waiting;
    unmeasured -= other.unmeasured;
    return *this;
  }
  friend LayerSums operator-(LayerSums a, const LayerSums& b) { return a -= b; }
};

/// Of a price alone, without what belongs to a layer whatever the micro-batch.
inline LayerSums sums_of(const LayerPrice& price) {
  return {.times = times_of(price),
          .crowded = price.crowded,
          .beside = price.beside,
          .first = price.first,
          .saved = price.saved,
          .waiting = price.waiting.value_or(0),
          .unmeasured = price.waiting ? 0 : 1};
}

inline LayerSums sums_of(const GraphLayer& layer, const LayerPrice& price) {
  LayerSums sums = sums_of(price);
  sums.returned = layer.has_gradient ? price.forward : 0;
  sums.parameters = layer.parameter_bytes;
  sums.frozen = layer.frozen_bytes;
  sums.gradients = layer.gradient_bytes();
  sums.buffers = layer.buffer_bytes;
  sums.experts = layer.expert_bytes;
  return sums;
}

/// Of the loss, whose gradient always returns.
inline LayerSums sums_of_loss(const LayerPrice& price) {
  LayerSums sums = sums_of(price);
  sums.returned = price.forward;
  return sums;
}

}  // namespace pp::plan
