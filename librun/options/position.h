// Where a training stands, counted in updates. Free of Torch.
#pragma once

#include <cstdint>

#include "librun/options/loss_scale.h"

namespace pp::run {

/// An optimizer step: one mini-batch, or as many as are accumulated, counted from 0 at the beginning of the
/// training.
using Step = std::int64_t;

/// How far a training has come: between two updates.
struct Position {
  Step step = 0;             ///< finished updates
  int epoch = 0;             ///< finished epochs
  Step epoch_steps = 0;      ///< finished updates of the epoch that has begun
  double epoch_loss = 0;     ///< their losses, each times its samples (or what its labels count for)
  double epoch_samples = 0;  ///< the sum of these; steps without an update have none
  LossScale loss_scale{};    ///< for the next step
  bool operator==(const Position&) const = default;
};

}  // namespace pp::run
