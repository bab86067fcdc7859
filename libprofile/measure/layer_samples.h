// All samples of one micro-batch size, sorted by condition, layer and phase.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "libprofile/core/profile.h"
#include "libprofile/measure/model_runner.h"

namespace pp::profile {

class LayerSamples {
 public:
  /// `positions`: layers, and one more for the loss.
  explicit LayerSamples(int positions);

  void add(const VisitTimes& times, const PassKind& kind);

  /// Nothing where the condition was not measured. Forward from full and split passes, backward from full ones,
  /// the halves from split ones.
  std::optional<LayerTimes> times(const Condition& condition, int position) const;

  /// The times of `point`: of devices that are all busy with the whole model, and under the conditions that a
  /// point tells apart.
  void fill_times(int position, LayerPoint& point) const;
  void fill_times(WholeModelPoint& point) const;

 private:
  struct Samples {
    std::vector<double> forward, backward, input_gradient, weight_gradient;
    void add(const PassTimes& pass, std::size_t position, Laps laps);
  };
  using Positions = std::vector<Samples>;
  Positions& under(const Condition& condition);
  void add(const Condition& condition, const PassTimes& pass, Laps laps);

  std::size_t positions_;
  std::vector<std::pair<Condition, Positions>> samples_;
  std::vector<double> whole_forward_, whole_backward_;
};

}  // namespace pp::profile
