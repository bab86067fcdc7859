#include "librun/options/position.h"

namespace pp::run {

LossScale initial_loss_scale(std::optional<double> fixed, bool dynamic) {
  if (fixed) return {*fixed};
  return {dynamic ? 65536.0 : 1.0};
}

LossScale next_loss_scale(LossScale scale, bool finite) {
  constexpr std::int64_t kSteps = 2000;
  if (!finite) return {scale.factor / 2};
  if (++scale.finite_steps < kSteps) return scale;
  return {scale.factor * 2};
}

}  // namespace pp::run
