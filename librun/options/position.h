// Where a training stands, counted in updates. Free of Torch.
#pragma once

#include <cstdint>
#include <optional>

#include "librun/options/loss_scale.h"

namespace pp::run {

/// An optimizer step: one mini-batch, or as many as are accumulated, counted from 0 at the beginning of the
/// training.
using Step = std::int64_t;

/// What the evaluations of a training that acts on them have said.
struct Evaluated {
  Step step = 0;  ///< of the last one
  double best_loss = 0;
  Step best_step = 0;
  std::int64_t since_best = 0;  ///< evaluations, none of a lesser loss
  bool operator==(const Evaluated&) const = default;
};

/// How far a training has come: between two updates.
struct Position {
  Step step = 0;             ///< finished updates
  int epoch = 0;             ///< finished epochs
  Step epoch_steps = 0;      ///< finished updates of the epoch that has begun
  double epoch_loss = 0;     ///< their losses, each times its samples (or what its labels count for)
  double epoch_samples = 0;  ///< the sum of these; steps without an update have none
  LossScale loss_scale{};    ///< for the next step
  std::optional<Evaluated> evaluated = {};
  bool operator==(const Position&) const = default;
};

}  // namespace pp::run
