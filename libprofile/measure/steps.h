// The steps of a profile: at each micro-batch size, what passes run on and how many bytes they take, and how
// long the profile will sample what; then the times of every layer, under every condition.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "libprofile/core/kernel_choice.h"
#include "libprofile/core/profile.h"
#include "libprofile/measure/model_runner.h"
#include "libprofile/measure/profiled_devices.h"
#include "libprofile/measure/profiler.h"
#include "libprofile/measure/statistics.h"

namespace pp::profile {

/// When the passes of one micro-batch size have been timed enough.
inline StoppingRule rule_of_passes(const ProfileOptions& options) {
  return {.min_time = options.min_time, .precision = options.precision, .budget = options.budget_per_size};
}

/// Time for all updates of one optimizer.
inline Seconds budget_of_optimizer(const ProfileOptions& options) { return options.budget_per_size / 4; }
inline constexpr std::array kMeasuredOptimizers{OptimizerName::sgd, OptimizerName::adamw};

/// When updates have been timed enough that are timed together, `measurements` of which share the optimizer's
/// budget.
inline StoppingRule rule_of_updates(const ProfileOptions& options, int measurements) {
  return {.min_time = Seconds(0),
          .precision = options.precision,
          .budget = budget_of_optimizer(options) / measurements,
          .fewest_samples = 5};
}

struct MeasuredSize {
  std::int64_t micro_batch_size = 1;
  bool out_of_memory = false;
  PassBytes bytes;      ///< of the first device
  Seconds pass_time{};  ///< of the byte passes: a first guess
};

struct MeasuredBytes {
  std::vector<MeasuredSize> sizes = {};  ///< as the runners count them; at the end some may be missing
  std::vector<KernelChoice> kernels;
};

/// The sizes that are asked for, or may be.
std::vector<std::int64_t> sizes_to_measure(const ProfileOptions& options);

/// Chooses the kernels of each size, but for those that are `known`. A size that does not fit is marked, and so
/// are all above it. Throws model::OutOfMemory when none fits, pp::Error (run) when the model cannot run.
MeasuredBytes measure_bytes(ProfiledDevices& devices, const Subject& subject, std::vector<KernelChoice> known);

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
