// The second step of a profile: the times of every layer, under every condition, at each micro-batch size.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "libprofile/core/profile.h"
#include "libprofile/measure/measure_bytes.h"
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

struct MeasuredTimes {
  std::vector<LayerSamples> samples;  ///< per size
  std::vector<int> in_flight;         ///< per size: micro-batches in a pipeline's first part
  Context findings;                   ///< what the timing says about the machine
};

/// Adds to the devices the parts of the model that they share, where model and memory have room for them; a
/// warning where memory has none.
MeasuredTimes measure_times(ProfiledDevices& devices, const Subject& subject, const MeasuredBytes& bytes);

}  // namespace pp::profile
