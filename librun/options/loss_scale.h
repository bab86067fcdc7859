// The factor on losses that keeps small gradients of float16 products from vanishing.
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

/// Of a dynamic scale after a step: half of it where gradients were not finite, so that no update was made,
/// twice after 2,000 steps in a row that were. Rule and figures of torch.amp.GradScaler, which halves for ever;
/// here the caller ends the run when a step at the least scale is not finite: the scale is not to blame any
/// more.
LossScale next_loss_scale(LossScale scale, bool finite);

}  // namespace pp::run
