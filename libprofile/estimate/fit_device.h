// The figures of a device from measured steps: least squares over the logarithms of predicted and measured
// times.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/estimate/device_spec.h"
#include "libprofile/estimate/fit_error.h"
#include "libprofile/estimate/step_model.h"

namespace pp::profile {

/// A figure that can be fitted.
struct FitParameter {
  std::string name;  ///< as in the document: `types.efficiency`, `traffic.loss`, `tensor_link.latency_s`
  double least = 0, most = 0;
  std::function<double(const DeviceSpec&, DType)> get;
  std::function<void(DeviceSpec&, DType, double)> set;
};

/// All that can be fitted for runs of one type.
const std::vector<FitParameter>& fit_parameters();

struct FitOptions {
  std::vector<std::string> parameters;  ///< names; empty: all that the start has above 0
  unsigned seed = 1;                    ///< of the halves
};

FitError error_of(std::span<const StepWork> runs, const DeviceSpec& device);

struct DeviceFit {
  DeviceSpec device;                 ///< fitted to all runs
  FitError before, all;              ///< of the start and of the result, on all runs
  FitError fitted_half, other_half;  ///< of a fit to a random half of the runs alone
  std::vector<std::string> fitted;   ///< names
  std::vector<std::string> unseen;   ///< left as they were: doubled they change no prediction by 0.1 %
};

/// Soft absolute loss, so that a few odd runs do not decide, and figures within their limits.
/// Levenberg-Marquardt (More, 1978) with numerical derivatives, by Eigen. Throws pp::Error (usage) for fewer
/// than two runs for each parameter, runs of several types, an unknown parameter, and when no parameter can be
/// seen. Time: O(iterations * parameters * layers of all runs).
DeviceFit fit_device(const DeviceSpec& start, std::span<const StepWork> runs, const FitOptions& options);

}  // namespace pp::profile
