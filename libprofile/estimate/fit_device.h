// The figures of a device, and of the trainers that ran on it, from measured steps: least squares over the
// logarithms of predicted and measured times.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/estimate/device_spec.h"
#include "libprofile/estimate/measured_runs.h"
#include "libprofile/estimate/step_model.h"

namespace pp::profile {

struct Figures {
  DeviceSpec device;
  std::vector<TrainerSpec> trainers;  ///< StepWork::trainer is a position
};

/// A figure that can be fitted.
struct FitParameter {
  std::string
      name;  ///< as in the document: `types.efficiency`, `tensor_link.latency_s`, `megatron.traffic.loss`
  double least = 0, most = 0;
  std::function<double(const Figures&, const RunType&)> get;
  std::function<void(Figures&, const RunType&, double)> set;
};

/// All that can be fitted for runs of one type by these trainers, those of the device first.
std::vector<FitParameter> fit_parameters(std::span<const TrainerSpec> trainers);

struct FitOptions {
  std::vector<std::string> parameters;  ///< names; empty: all that the start has above 0
  unsigned seed = 1;                    ///< of the halves
};

FitError error_of(std::span<const StepWork> runs, const Figures& figures);

/// Runs of one source: how far the fit to all is off on them, and one to all others.
struct SourceError {
  std::string source;
  FitError in_fit, left_out;  ///< left_out without runs: what is left is too little to fit
};

struct DeviceFit {
  Figures figures;                   ///< fitted to all runs
  FitError before, all;              ///< of the start and of the result, on all runs
  FitError fitted_half, other_half;  ///< of a fit to a random half of the runs alone
  std::vector<SourceError> sources;  ///< in the order of the runs
  struct Carried {
    std::string parameter;
    std::vector<std::string> sources;  ///< whose predictions change by 0.1 % where the figure is doubled
  };
  std::vector<Carried> fitted;
  std::vector<std::string> unseen;  ///< left as they were: no prediction changes by so much
};

/// Soft absolute loss, so that a few odd runs do not decide, every source weighing as much as another, and
/// figures within their limits. Levenberg-Marquardt (More, 1978) with numerical derivatives. Throws
/// pp::Error (usage) for fewer than two runs for each parameter, runs of several types, an unknown parameter,
/// and when no parameter can be seen. Time: O(sources * iterations * parameters * layers of all runs).
DeviceFit fit_device(const Figures& start, std::span<const StepWork> runs, const FitOptions& options);

}  // namespace pp::profile
