#include "libprofile/estimate/fit_device.h"

#include <algorithm>
#include <cmath>
#include <unsupported/Eigen/NonLinearOptimization>
#include <unsupported/Eigen/NumericalDiff>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::profile {
namespace {

/// Residuals beyond so much of a step count in proportion, not squared.
constexpr double kSoft = 0.03;
constexpr double kVisible = 1e-3;
/// Of the angles' length: from far away a longer one ends anywhere.
constexpr double kFirstStep = 0.1;
/// At a limit itself nothing changes with the angle.
constexpr double kInside = 0.999;
constexpr int kMostEvaluations = 4000;

TypeRates& rates(DeviceSpec& device, DType dtype) {
  return *std::ranges::find(device.types, dtype, &TypeRates::dtype);
}

FitParameter of_type(std::string name, double least, double most, double TypeRates::*field) {
  return {"types." + std::move(name), least, most,
          [field](const DeviceSpec& device, DType dtype) { return rates_of(device, dtype).*field; },
          [field](DeviceSpec& device, DType dtype, double value) { rates(device, dtype).*field = value; }};
}

FitParameter of_device(std::string name, double least, double most, std::function<double&(DeviceSpec&)> field) {
  return {std::move(name), least, most,
          [field](const DeviceSpec& device, DType) {
            DeviceSpec copy = device;
            return field(copy);
          },
          [field](DeviceSpec& device, DType, double value) { field(device) = value; }};
}

FitParameter of_time(std::string name, std::function<Seconds&(DeviceSpec&)> field) {
  return {std::move(name), 1e-9, 1,
          [field](const DeviceSpec& device, DType) {
            DeviceSpec copy = device;
            return field(copy).count();
          },
          [field](DeviceSpec& device, DType, double value) { field(device) = Seconds(value); }};
}

Link& link(DeviceSpec& device) {
  if (!device.tensor_link) device.tensor_link.emplace();
  return *device.tensor_link;
}

std::vector<FitParameter> make_parameters() {
  return {
      of_type("efficiency", 0.01, 1, &TypeRates::efficiency),
      of_type("half_flops", 1, 1e15, &TypeRates::half_flops),
      {"types.attention_efficiency", 0.01, 1,
       [](const DeviceSpec& device, DType dtype) {
         return rates_of(device, dtype).attention_efficiency.value_or(0);
       },
       [](DeviceSpec& device, DType dtype, double value) {
         rates(device, dtype).attention_efficiency = value;
       }},
      of_type("unaligned_efficiency", 0.01, 1, &TypeRates::unaligned_efficiency),
      of_device("memory_efficiency", 0.01, 1, [](DeviceSpec& d) -> double& { return d.memory_efficiency; }),
      of_time("kernel_overhead_s", [](DeviceSpec& d) -> Seconds& { return d.kernel_overhead; }),
      of_time("launch_s", [](DeviceSpec& d) -> Seconds& { return d.launch; }),
      of_time("backward_launch_s", [](DeviceSpec& d) -> Seconds& { return d.backward_launch; }),
      of_time("update_s", [](DeviceSpec& d) -> Seconds& { return d.update; }),
      of_device("traffic.elements", 0.01, 100, [](DeviceSpec& d) -> double& { return d.traffic.elements; }),
      of_device("traffic.attention", 0.01, 100, [](DeviceSpec& d) -> double& { return d.traffic.attention; }),
      of_device("traffic.loss", 0.01, 100, [](DeviceSpec& d) -> double& { return d.traffic.loss; }),
      of_device("tensor_link.bandwidth_bytes_per_s", 1e6, 1e14,
                [](DeviceSpec& d) -> double& { return link(d).bandwidth.value; }),
      of_time("tensor_link.latency_s", [](DeviceSpec& d) -> Seconds& { return link(d).latency; })};
}

/// Of the logarithm between a parameter's limits.
struct Span {
  double middle, half;
};
Span span_of(const FitParameter& parameter) {
  return {std::log(parameter.most * parameter.least) / 2, std::log(parameter.most / parameter.least) / 2};
}

/// Three digits: more say nothing that the runs know.
double rounded(double value) {
  const double scale = std::pow(10.0, 2 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

class Problem {
 public:
  using Scalar = double;
  using InputType = Eigen::VectorXd;
  using ValueType = Eigen::VectorXd;
  using JacobianType = Eigen::MatrixXd;
  enum { InputsAtCompileTime = Eigen::Dynamic, ValuesAtCompileTime = Eigen::Dynamic };

  Problem(const DeviceSpec& start, std::vector<const FitParameter*> parameters,
          std::vector<const StepWork*> runs)
      : start_(start),
        parameters_(std::move(parameters)),
        runs_(std::move(runs)),
        dtype_(runs_[0]->run.dtype) {}

  int inputs() const { return static_cast<int>(parameters_.size()); }
  int values() const { return static_cast<int>(runs_.size()); }

  /// At `angles`, within limits: a parameter's logarithm goes with the sine between its limits' (as in James
  /// and Roos, Minuit, 1975), so that a step beyond one comes back. Around the middle an angle is a logarithm.
  DeviceSpec device(const InputType& angles) const {
    DeviceSpec device = start_;
    for (int i = 0; i < inputs(); ++i) {
      const FitParameter& parameter = *parameters_[at(i)];
      const auto [middle, half] = span_of(parameter);
      parameter.set(device, dtype_, std::exp(middle + half * std::sin(angles[i] / half)));
    }
    return device;
  }

  InputType start() const {
    InputType angles(inputs());
    for (int i = 0; i < inputs(); ++i) {
      const FitParameter& parameter = *parameters_[at(i)];
      const auto [middle, half] = span_of(parameter);
      const double place = (std::log(parameter.get(start_, dtype_)) - middle) / half;
      angles[i] = half * std::asin(std::clamp(place, -kInside, kInside));
    }
    return angles;
  }

  int operator()(const InputType& angles, ValueType& residuals) const {
    const DeviceSpec device = this->device(angles);
    for (int i = 0; i < values(); ++i) {
      const StepWork& step = *runs_[at(i)];
      const double off = std::log(step_time(step, device) / step.run.step) / kSoft;
      residuals[i] = std::copysign(std::sqrt(2 * (std::sqrt(1 + off * off) - 1)), off);
    }
    return 0;
  }

  DeviceSpec solve() const {
    Eigen::NumericalDiff<Problem> problem(*this, 1e-8);
    Eigen::LevenbergMarquardt<Eigen::NumericalDiff<Problem>> solver(problem);
    solver.parameters.maxfev = kMostEvaluations;
    solver.parameters.factor = kFirstStep;
    Eigen::VectorXd angles = start();
    solver.minimize(angles);
    DeviceSpec device = this->device(angles);
    for (const FitParameter* parameter : parameters_)
      parameter->set(device, dtype_,
                     std::clamp(rounded(parameter->get(device, dtype_)), parameter->least, parameter->most));
    return device;
  }

 private:
  const DeviceSpec& start_;
  std::vector<const FitParameter*> parameters_;
  std::vector<const StepWork*> runs_;
  DType dtype_;
};

std::vector<const FitParameter*> chosen(const DeviceSpec& start, DType dtype, const FitOptions& options) {
  std::vector<const FitParameter*> result;
  std::string known;
  for (const FitParameter& parameter : fit_parameters()) {
    known.append(known.empty() ? "" : ", ").append(parameter.name);
    const bool named = std::ranges::find(options.parameters, parameter.name) != options.parameters.end();
    if (options.parameters.empty() ? parameter.get(start, dtype) > 0 : named) result.push_back(&parameter);
    if (named && !(parameter.get(start, dtype) > 0)) {
      throw Error(ErrorKind::usage, "parameter " + parameter.name +
                                        " is 0 or missing in the device to start from; "
                                        "give it a value there that is about right");
    }
  }
  for (const std::string& name : options.parameters) {
    if (std::ranges::find(fit_parameters(), name, &FitParameter::name) == fit_parameters().end())
      throw Error(ErrorKind::usage, "unknown parameter \"" + name + "\"; use some of " + known);
  }
  return result;
}

bool is_seen(const FitParameter& parameter, const DeviceSpec& start, std::span<const StepWork> runs) {
  const DType dtype = runs.front().run.dtype;
  const double value = parameter.get(start, dtype);
  for (const double factor : {0.5, 2.0}) {
    DeviceSpec changed = start;
    parameter.set(changed, dtype, std::clamp(value * factor, parameter.least, parameter.most));
    const auto moves = [&](const StepWork& step) {
      return std::abs(step_time(step, changed) / step_time(step, start) - 1) > kVisible;
    };
    if (std::ranges::any_of(runs, moves)) return true;
  }
  return false;
}

std::vector<const StepWork*> pointers(std::span<const StepWork> runs) {
  std::vector<const StepWork*> all;
  for (const StepWork& run : runs) all.push_back(&run);
  return all;
}

FitError error_of(const std::vector<const StepWork*>& runs, const DeviceSpec& device) {
  std::vector<double> ratios;
  for (const StepWork* step : runs) ratios.push_back(step_time(*step, device) / step->run.step);
  return fit_error(ratios);
}

}  // namespace

const std::vector<FitParameter>& fit_parameters() {
  static const std::vector<FitParameter> parameters = make_parameters();
  return parameters;
}

FitError error_of(std::span<const StepWork> runs, const DeviceSpec& device) {
  return error_of(pointers(runs), device);
}

DeviceFit fit_device(const DeviceSpec& start, std::span<const StepWork> runs, const FitOptions& options) {
  if (runs.empty())
    throw Error(ErrorKind::usage, "there are no runs to fit to; give at least two per parameter");
  const DType dtype = runs.front().run.dtype;
  for (const StepWork& step : runs) {
    if (step.run.dtype == dtype) continue;
    throw Error(ErrorKind::usage, "line " + std::to_string(step.run.line) + " is of " +
                                      std::string(name_of(step.run.dtype)) + ", the first of " +
                                      std::string(name_of(dtype)) + "; fit one type after the other");
  }
  rates_of(start, dtype);
  DeviceFit fit;
  std::vector<const FitParameter*> seen;
  for (const FitParameter* parameter : chosen(start, dtype, options)) {
    const bool is = is_seen(*parameter, start, runs);
    (is ? fit.fitted : fit.unseen).push_back(parameter->name);
    if (is) seen.push_back(parameter);
  }
  if (seen.empty()) throw Error(ErrorKind::usage, "no prediction depends on the parameters; name others");
  if (runs.size() < 2 * seen.size()) {
    throw Error(ErrorKind::usage, std::to_string(runs.size()) + " runs are too few for " +
                                      std::to_string(seen.size()) +
                                      " parameters, two for each are needed; measure "
                                      "more, or name fewer with --parameters");
  }
  const std::vector<const StepWork*> order = pointers(runs);
  const auto [one, other] = random_halves(order.size(), options.seed);
  std::vector<const StepWork*> half, rest;
  for (const std::size_t position : one) half.push_back(order[position]);
  for (const std::size_t position : other) rest.push_back(order[position]);
  const DeviceSpec of_half = Problem(start, seen, half).solve();
  fit.fitted_half = error_of(half, of_half);
  fit.other_half = error_of(rest, of_half);
  fit.before = error_of(order, start);
  fit.device = Problem(start, seen, order).solve();
  fit.all = error_of(order, fit.device);
  return fit;
}

}  // namespace pp::profile
