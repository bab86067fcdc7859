// Where a training stands, counted in updates, with the factor on losses that keeps small gradients of
// float16 products from vanishing. Free of Torch.
#pragma once

#include <cstdint>
#include <optional>

namespace pp::run {

/// Backwards multiply the loss by `factor`, the update divides gradients by it. Powers of two change no bit of
/// a gradient that is neither too large nor too small for its type.
struct LossScale {
  double factor = 1;
  std::int64_t finite_steps = 0;  ///< since the factor changed
  bool operator==(const LossScale&) const = default;
};

/// The smallest number of float16.
inline constexpr double kLeastLossScale = 0x1p-24;

/// A dynamic scale begins at 2^16.
LossScale initial_loss_scale(std::optional<double> fixed, bool dynamic);

/// A dynamic scale after a step: half of it where gradients were not finite, so that no update was made,
/// twice after 2,000 steps in a row that were. Rule and figures of torch.amp.GradScaler, which halves for ever;
/// here the caller ends the run when a step at the least scale is not finite: the scale is not to blame any
/// more.
LossScale next_loss_scale(LossScale scale, bool finite);

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
