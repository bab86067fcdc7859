// All samples of one micro-batch size, sorted by layer and phase.
#pragma once

#include <vector>

#include "libprofile/core/profile.h"
#include "libprofile/measure/model_runner.h"

namespace pp::profile {

class LayerSamples {
 public:
  /// `positions`: layers, and one more for the loss.
  explicit LayerSamples(int positions);

  void add(const VisitTimes& times, PassKind kind);

  /// Fills the times of `point`: forward from full and split passes, backward from full ones, the halves from
  /// split ones.
  void fill_times(int position, LayerPoint& point) const;
  void fill_times(WholeModelPoint& point) const;

 private:
  struct Position {
    std::vector<double> forward, backward, input_gradient, weight_gradient;
  };
  std::vector<Position> positions_;
  std::vector<double> whole_forward_, whole_backward_;
};

}  // namespace pp::profile
