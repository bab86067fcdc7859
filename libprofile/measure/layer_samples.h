// All samples of one micro-batch size, sorted by layer and phase.
#pragma once

#include <optional>
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
  /// split ones; the medians of first passes and of passes in parts where there are any.
  void fill_times(int position, LayerPoint& point) const;
  void fill_times(WholeModelPoint& point) const;

 private:
  struct Samples {
    std::vector<double> forward, backward, input_gradient, weight_gradient;
    void add(const PassTimes& pass, std::size_t position, bool split);
    std::optional<LayerTimes> medians() const;
  };
  struct Position {
    Samples all, first, alone, in_part;
    Samples& of(PassKind kind) { return in_parts(kind) ? in_part : is_alone(kind) ? alone : all; }
  };
  std::vector<Position> positions_;
  std::vector<double> whole_forward_, whole_backward_;
};

}  // namespace pp::profile
