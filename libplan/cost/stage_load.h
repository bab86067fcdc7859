// How long a stage keeps its devices busy: the one formula behind every search and every bound.
#pragma once

#include <algorithm>

#include "libplan/cost/chain.h"

namespace pp::plan {

enum class LoadKind {
  step,        ///< synchronous: the steady part of a step; the sum of a partition is the way of one micro-batch
  steady,      ///< synchronous: all of a stage's work and messages in a step, which chained steps repeat
  step_bound,  ///< certificate of the steady step: fill and drain around the stage, or its own work and update
  period,      ///< asynchronous: seconds per update in steady state
  period_bound,  ///< the same with the tensors that every stage must exchange whatever the others are
};

/// What a stage does. Seconds of one micro-batch on the device that the profile is of, if nothing else is said;
/// without the fixed costs of an operation.
struct LoadTerms {
  double forward = 0, backward = 0;
  /// Of `step_bound`: the part of the backward that the stages in front wait for; forward and that part of this
  /// stage and all in front, as far as gradients return (Chain::returned); the same of the whole model.
  double awaited = 0, reach = 0, whole = 0;
  double update = 0;       ///< per step, fixed costs included
  double all_reduce = 0;   ///< per step, on the devices that the stage has
  double again = 0;        ///< per step or update: what runs a second time to save memory
  double again_later = 0;  ///< the part of it behind the first micro-batch's, which may run before its backward
  OperationCost fixed{};
  OperationCost messages{};  ///< what these keep the stage's devices from their work, whatever their speed
  double slowness = 1;       ///< of the stage's devices: times as long as on the profile's
  double turns = 1;          ///< micro-batches per step or update of its busiest replica
  int replicas = 1;
};

/// Seconds per step or update; with n turns on q replicas, F, B and U at the speed of the devices, messages
/// included, overlap o,
///
///   steady = max(n (F + B), n F + (n - o) B + AR) + again + U       step: the same with n - 1 in the maximum
///   period = steady M / (n q)
///   step_bound = max(steady, R + (n - 1)(F + B') + again, W + (n - 1) F, W + (n - 1) B' + again_later)
///
/// with B' the awaited backward, R and W the way of one micro-batch through all layers up to the stage's last
/// one, and through the whole model, at full speed. The last two: the stage's first backward follows a forward
/// through all stages and the backwards of those behind it, its last one is followed by those in front; its
/// last forward likewise. So the same work costs less in front, where forwards run while the pipeline fills.
///
/// Each load is monotone: adding a layer to a stage never lowers it, in floating point either. The exception is
/// `step` with n = 1, where a longer backward hides more of the all-reduce. The asynchronous form is
/// PipeDream's (SOSP'19, 3.1) for n micro-batches per update.
inline double stage_load(LoadKind kind, const LoadTerms& stage, double micro_batches,
                         double all_reduce_overlap) {
  const double f = (stage.forward + stage.fixed.forward) * stage.slowness + stage.messages.forward;
  const double b = (stage.backward + stage.fixed.backward) * stage.slowness + stage.messages.backward;
  const double again = stage.again * stage.slowness;
  const double n = kind == LoadKind::step ? stage.turns - 1 : stage.turns;
  const double load = std::max(n * (f + b), n * f + (n - all_reduce_overlap) * b + stage.all_reduce) + again +
                      stage.update * stage.slowness;
  switch (kind) {
    case LoadKind::step:
    case LoadKind::steady: return load;
    case LoadKind::period:
    case LoadKind::period_bound: return load * micro_batches / (n * stage.replicas);
    case LoadKind::step_bound: break;
  }
  const double turns = n * stage.slowness;
  const double forwards = turns * stage.fixed.forward + n * stage.messages.forward;
  const double backwards = turns * stage.fixed.backward + n * stage.messages.backward;
  const double around =
      stage.reach + (turns - 1) * (stage.forward + stage.awaited) + (forwards + backwards + again);
  const double through =
      stage.whole + std::max((turns - 1) * stage.forward + forwards,
                             (turns - 1) * stage.awaited + backwards + stage.again_later * stage.slowness);
  return std::max({load, around, through});
}

}  // namespace pp::plan
