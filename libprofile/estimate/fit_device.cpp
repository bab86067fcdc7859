#include "libprofile/estimate/fit_device.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::profile {
namespace {

/// Residuals beyond so much of a step count in proportion, not squared.
constexpr double kSoft = 0.03;
constexpr double kVisible = 1e-3;
/// The first share of the squared slopes that damps a step: from far away a bold first step ends anywhere.
constexpr double kFirstDamping = 0.1;
constexpr double kMostDamping = 1e12;  ///< no step helps
constexpr double kDifference = 1e-4;   ///< of an angle, for derivatives
constexpr double kSingular = 1e-30;
constexpr double kLeastGain = 1e-8;  ///< of the squares, in one step
/// At a limit itself nothing changes with the angle.
constexpr double kInside = 0.999;
constexpr int kMostRounds = 300;

Seconds time_of(const StepWork& step, const Figures& figures) {
  return step_time(step, figures.device, figures.trainers.at(step.trainer));
}

using Place = std::function<double&(Figures&, const RunType&)>;

FitParameter figure(std::string name, double least, double most, Place place) {
  return {std::move(name), least, most,
          [place](const Figures& figures, const RunType& dtype) {
            Figures copy = figures;
            return place(copy, dtype);
          },
          [place](Figures& figures, const RunType& dtype, double value) { place(figures, dtype) = value; }};
}

FitParameter time(std::string name, std::function<Seconds&(Figures&)> place) {
  return {std::move(name), 1e-9, 1,
          [place](const Figures& figures, const RunType&) {
            Figures copy = figures;
            return place(copy).count();
          },
          [place](Figures& figures, const RunType&, double value) { place(figures) = Seconds(value); }};
}

TypeRates& rates(Figures& figures, const RunType& dtype) {
  return *std::ranges::find(figures.device.types, dtype, &TypeRates::dtype);
}

Link& link(Figures& figures) {
  if (!figures.device.tensor_link) figures.device.tensor_link.emplace();
  return *figures.device.tensor_link;
}

/// A figure that may be missing, which is 0 then.
double& attention_efficiency(Figures& figures, const RunType& dtype) {
  std::optional<double>& efficiency = rates(figures, dtype).attention_efficiency;
  return efficiency ? *efficiency : efficiency.emplace(0);
}

void add_trainer(std::vector<FitParameter>& all, const std::string& name, std::size_t t) {
  const auto spec = [t](Figures& figures) -> TrainerSpec& { return figures.trainers[t]; };
  all.push_back(time(name + ".launch_s", [=](Figures& f) -> Seconds& { return spec(f).launch; }));
  all.push_back(
      time(name + ".backward_launch_s", [=](Figures& f) -> Seconds& { return spec(f).backward_launch; }));
  all.push_back(time(name + ".update_s", [=](Figures& f) -> Seconds& { return spec(f).update; }));
  const auto add = [&](const char* key, double most, auto place) {
    all.push_back(
        figure(name + key, 0.01, most, [=](Figures& f, const RunType&) -> double& { return place(spec(f)); }));
  };
  add(".traffic.elements", 100, [](TrainerSpec& s) -> double& { return s.traffic.elements; });
  add(".traffic.attention", 100, [](TrainerSpec& s) -> double& { return s.traffic.attention; });
  add(".traffic.loss", 100, [](TrainerSpec& s) -> double& { return s.traffic.loss; });
  add(".hidden_gradients", 1, [](TrainerSpec& s) -> double& { return s.hidden_gradients; });
  add(".hidden_tensor", 1, [](TrainerSpec& s) -> double& { return s.hidden_tensor; });
}

/// Of the logarithm between a parameter's limits.
struct Span {
  double middle, half;
};
Span span_of(const FitParameter& parameter) {
  return {std::log(parameter.most * parameter.least) / 2, std::log(parameter.most / parameter.least) / 2};
}

/// Three digits: more say nothing that the runs know.
double three_digits(double value) {
  const double scale = std::pow(10.0, 2 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

class Problem {
 public:
  using Values = std::vector<double>;

  Problem(const Figures& start, std::vector<const FitParameter*> parameters, std::vector<const StepWork*> runs)
      : start_(start), parameters_(std::move(parameters)), runs_(std::move(runs)), dtype_(runs_[0]->run.dtype) {
    for (const StepWork* run : runs_) ++of_source_[run->source];
  }

  int inputs() const { return static_cast<int>(parameters_.size()); }

  /// At `angles`, within limits: a parameter's logarithm goes with the sine between its limits' (as in James
  /// and Roos, Minuit, 1975), so that a step beyond one comes back. Around the middle an angle is a logarithm.
  Figures figures(const Values& angles) const {
    Figures figures = start_;
    for (int i = 0; i < inputs(); ++i) {
      const FitParameter& parameter = *parameters_[at(i)];
      const auto [middle, half] = span_of(parameter);
      parameter.set(figures, dtype_, std::exp(middle + half * std::sin(angles[at(i)] / half)));
    }
    return figures;
  }

  Values start() const {
    Values angles;
    for (int i = 0; i < inputs(); ++i) {
      const FitParameter& parameter = *parameters_[at(i)];
      const auto [middle, half] = span_of(parameter);
      const double place = (std::log(parameter.get(start_, dtype_)) - middle) / half;
      angles.push_back(half * std::asin(std::clamp(place, -kInside, kInside)));
    }
    return angles;
  }

  Values residuals(const Values& angles) const {
    const Figures figures = this->figures(angles);
    Values all;
    for (const StepWork* step : runs_) {
      const double off = std::log(time_of(*step, figures) / step->run.step) / kSoft;
      const double weight = 1.0 / static_cast<double>(of_source_.at(step->source));
      all.push_back(std::copysign(std::sqrt(2 * weight * (std::sqrt(1 + off * off) - 1)), off));
    }
    return all;
  }

  Figures solve() const {
    Figures figures = this->figures(fitted());
    for (const FitParameter* parameter : parameters_)
      parameter->set(
          figures, dtype_,
          std::clamp(three_digits(parameter->get(figures, dtype_)), parameter->least, parameter->most));
    return figures;
  }

 private:
  static double squares(const Values& values) {
    return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  }

  /// (A + damping * diagonal of A) x = -b, by Cholesky; A is that of the rows of `slopes`, by parameter.
  static Values step(const std::vector<Values>& slopes, const Values& now, double damping) {
    const std::size_t n = slopes.size();
    std::vector<Values> lower(n, Values(n));
    Values x(n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double sum = std::inner_product(slopes[i].begin(), slopes[i].end(), slopes[j].begin(), 0.0);
        if (i == j) sum += damping * sum + kSingular;
        for (std::size_t k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
        lower[i][j] = i == j ? std::sqrt(std::max(sum, kSingular)) : sum / lower[j][j];
      }
      x[i] = -std::inner_product(slopes[i].begin(), slopes[i].end(), now.begin(), 0.0);
      for (std::size_t k = 0; k < i; ++k) x[i] -= lower[i][k] * x[k];
      x[i] /= lower[i][i];
    }
    for (std::size_t i = n; i-- > 0;) {
      for (std::size_t k = i + 1; k < n; ++k) x[i] -= lower[k][i] * x[k];
      x[i] /= lower[i][i];
    }
    return x;
  }

  /// Levenberg-Marquardt with derivatives by differences (Marquardt, 1963): the damping falls where a step
  /// helps and rises where it does not.
  Values fitted() const {
    Values angles = start(), now = residuals(angles);
    double damping = kFirstDamping;
    for (int round = 0; round < kMostRounds && damping < kMostDamping; ++round) {
      std::vector<Values> slopes;
      for (std::size_t p = 0; p < angles.size(); ++p) {
        Values moved = angles;
        moved[p] += kDifference;
        slopes.push_back(residuals(moved));
        for (std::size_t r = 0; r < now.size(); ++r) slopes[p][r] = (slopes[p][r] - now[r]) / kDifference;
      }
      for (; damping < kMostDamping; damping *= 4) {
        const Values x = step(slopes, now, damping);
        Values next = angles;
        for (std::size_t p = 0; p < next.size(); ++p) next[p] += x[p];
        Values found = residuals(next);
        const double better = squares(now) - squares(found);
        if (!(better > 0)) continue;
        const bool over = better < kLeastGain * squares(now);
        angles = std::move(next), now = std::move(found);
        damping = over ? kMostDamping : damping / 10;
        break;
      }
    }
    return angles;
  }

  const Figures& start_;
  std::vector<const FitParameter*> parameters_;
  std::vector<const StepWork*> runs_;
  RunType dtype_;
  std::map<std::string, int> of_source_;  ///< runs
};

using Runs = std::vector<const StepWork*>;
using Parameters = std::vector<const FitParameter*>;

Parameters chosen(const std::vector<FitParameter>& all, const Figures& start, const RunType& dtype,
                  const FitOptions& options) {
  Parameters result;
  std::string known;
  for (const FitParameter& parameter : all) {
    known.append(known.empty() ? "" : ", ").append(parameter.name);
    const bool named = std::ranges::find(options.parameters, parameter.name) != options.parameters.end();
    if (options.parameters.empty() ? parameter.get(start, dtype) > 0 : named) result.push_back(&parameter);
    if (named && !(parameter.get(start, dtype) > 0)) {
      throw Error(ErrorKind::usage, "parameter " + parameter.name +
                                        " is 0 or missing in the document to start from; "
                                        "give it a value there that is about right");
    }
  }
  for (const std::string& name : options.parameters) {
    if (std::ranges::find(all, name, &FitParameter::name) == all.end())
      throw Error(ErrorKind::usage, "unknown parameter \"" + name + "\"; use some of " + known);
  }
  return result;
}

/// The sources whose predictions depend on the parameter.
std::vector<std::string> sources_of(const FitParameter& parameter, const Figures& start, const Runs& runs) {
  const RunType dtype = runs.front()->run.dtype;
  const double value = parameter.get(start, dtype);
  std::vector<std::string> sources;
  for (const double factor : {0.5, 2.0}) {
    Figures changed = start;
    parameter.set(changed, dtype, std::clamp(value * factor, parameter.least, parameter.most));
    for (const StepWork* run : runs) {
      const bool moves = std::abs(time_of(*run, changed) / time_of(*run, start) - 1) > kVisible;
      if (moves && std::ranges::find(sources, run->source) == sources.end()) sources.push_back(run->source);
    }
  }
  return sources;
}

FitError error_of(const Runs& runs, const Figures& figures) {
  std::vector<double> ratios;
  for (const StepWork* step : runs) ratios.push_back(time_of(*step, figures) / step->run.step);
  return fit_error(ratios);
}

/// The fit to all sources but one, on that one.
FitError left_out(const Figures& start, const Parameters& parameters, const Runs& runs,
                  const std::string& source) {
  Runs others, own;
  for (const StepWork* run : runs) (run->source == source ? own : others).push_back(run);
  Parameters seen;
  for (const FitParameter* parameter : parameters) {
    if (!others.empty() && !sources_of(*parameter, start, others).empty()) seen.push_back(parameter);
  }
  if (seen.empty() || others.size() < 2 * seen.size()) return {};
  return error_of(own, Problem(start, seen, others).solve());
}

void check_one_type(const Runs& runs) {
  const RunType dtype = runs.front()->run.dtype;
  for (const StepWork* step : runs) {
    if (step->run.dtype == dtype) continue;
    throw Error(ErrorKind::usage, "line " + std::to_string(step->run.line) + " is of " +
                                      std::string(name_of(step->run.dtype)) + ", the first of " +
                                      std::string(name_of(dtype)) + "; fit one type after the other");
  }
}

std::vector<SourceError> source_errors(const Figures& start, const Parameters& parameters, const Runs& runs,
                                       const Figures& fitted) {
  std::vector<SourceError> errors;
  for (const StepWork* run : runs) {
    if (std::ranges::find(errors, run->source, &SourceError::source) != errors.end()) continue;
    Runs own;
    std::ranges::copy_if(runs, std::back_inserter(own),
                         [&](const StepWork* r) { return r->source == run->source; });
    errors.push_back({run->source, error_of(own, fitted), left_out(start, parameters, runs, run->source)});
  }
  return errors;
}

}  // namespace

std::vector<FitParameter> fit_parameters(std::span<const TrainerSpec> trainers) {
  const auto of_type = [](std::string name, double least, double most, double TypeRates::*field) {
    return figure("types." + std::move(name), least, most,
                  [field](Figures& f, const RunType& dtype) -> double& { return rates(f, dtype).*field; });
  };
  std::vector<FitParameter> all{
      of_type("efficiency", 0.01, 1, &TypeRates::efficiency),
      of_type("half_flops", 1, 1e15, &TypeRates::half_flops),
      figure("types.attention_efficiency", 0.01, 1, attention_efficiency),
      of_type("unaligned_efficiency", 0.01, 1, &TypeRates::unaligned_efficiency),
      figure("memory_efficiency", 0.01, 1,
             [](Figures& f, const RunType&) -> double& { return f.device.memory_efficiency; }),
      time("kernel_overhead_s", [](Figures& f) -> Seconds& { return f.device.kernel_overhead; }),
      figure("tensor_link.bandwidth_bytes_per_s", 1e6, 1e14,
             [](Figures& f, const RunType&) -> double& { return link(f).bandwidth.value; }),
      time("tensor_link.latency_s", [](Figures& f) -> Seconds& { return link(f).latency; })};
  for (std::size_t t = 0; t < trainers.size(); ++t)
    if (!trainers[t].name.empty()) add_trainer(all, trainers[t].name, t);
  return all;
}

FitError error_of(std::span<const StepWork> runs, const Figures& figures) {
  Runs all;
  for (const StepWork& run : runs) all.push_back(&run);
  return error_of(all, figures);
}

DeviceFit fit_device(const Figures& start, std::span<const StepWork> runs, const FitOptions& options) {
  if (runs.empty())
    throw Error(ErrorKind::usage, "there are no runs to fit to; give at least two per parameter");
  Runs order;
  for (const StepWork& run : runs) order.push_back(&run);
  check_one_type(order);
  const RunType dtype = order.front()->run.dtype;
  rates_of(start.device, dtype);
  const std::vector<FitParameter> parameters = fit_parameters(start.trainers);
  DeviceFit fit;
  Parameters seen;
  for (const FitParameter* parameter : chosen(parameters, start, dtype, options)) {
    std::vector<std::string> sources = sources_of(*parameter, start, order);
    if (sources.empty()) {
      fit.unseen.push_back(parameter->name);
    } else {
      fit.fitted.push_back({parameter->name, std::move(sources)});
      seen.push_back(parameter);
    }
  }
  if (seen.empty()) throw Error(ErrorKind::usage, "no prediction depends on the parameters; name others");
  if (runs.size() < 2 * seen.size()) {
    throw Error(ErrorKind::usage, std::to_string(runs.size()) + " runs are too few for " +
                                      std::to_string(seen.size()) +
                                      " parameters, two for each are needed; measure "
                                      "more, or name fewer with --parameters");
  }
  const auto [one, other] = random_halves(order.size(), options.seed);
  Runs half, rest;
  for (const std::size_t position : one) half.push_back(order[position]);
  for (const std::size_t position : other) rest.push_back(order[position]);
  const Figures of_half = Problem(start, seen, half).solve();
  fit.fitted_half = error_of(half, of_half);
  fit.other_half = error_of(rest, of_half);
  fit.before = error_of(order, start);
  fit.figures = Problem(start, seen, order).solve();
  fit.all = error_of(order, fit.figures);
  fit.sources = source_errors(start, seen, order, fit.figures);
  return fit;
}

}  // namespace pp::profile
