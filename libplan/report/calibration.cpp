#include "libplan/report/calibration.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "libplan/cost/priced_model.h"
#include "libplan/price/predict.h"

namespace pp::plan {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::data, message); }

void check_sizes(const Plan& plan, const Profile& profile) {
  for (const int size : micro_batch_sizes(plan.training.mini_batch, plan.training.micro_batches)) {
    if (std::ranges::count(profile.micro_batch_sizes, size) > 0) continue;
    std::string known;
    for (const std::int64_t one : profile.micro_batch_sizes)
      known.append(known.empty() ? "" : ", ").append(std::to_string(one));
    refuse("the run had micro-batches of " + std::to_string(size) + " samples, the profile has sizes " + known +
           "; run a plan with one of them, or profile that size");
  }
}

void check_run(const MeasuredRun& run, const Profile& profile) {
  if (const std::string ran = model_hash(run.plan.model); ran != profile.model_hash) {
    refuse("the run is of model \"" + run.plan.model.name + "\" (" + ran + "), the profile of \"" +
           profile.model.name + "\" (" + profile.model_hash + "); run a plan of this profile");
  }
  if (run.plan.training.dtype != profile.dtype) {
    refuse("the run computed in " + std::string(pp::name_of(run.plan.training.dtype)) + ", the profile is of " +
           std::string(pp::name_of(profile.dtype)) + "; run a plan of this profile");
  }
  if (run.plan.training.memory_format != profile.memory_format) {
    refuse("the run had tensors " + std::string(pp::name_of(run.plan.training.memory_format)) +
           ", the profile is of " + std::string(pp::name_of(profile.memory_format)) +
           "; run a plan of this profile");
  }
  if (run.plan.training.autocast != profile.autocast)
    refuse("the run's plan and the profile are not of the same autocast; run a plan of this profile");
  for (const Device& device : run.plan.devices) {
    if (device.kind == profile.device.kind) continue;
    refuse("the run used devices of kind " + std::string(pp::name_of(device.kind)) + ", the profile is of " +
           std::string(pp::name_of(profile.device.kind)) + "; run a plan of this profile");
  }
  check_sizes(run.plan, profile);
}

/// Measured and promised seconds of operations, the fixed part of both taken off where something is left of
/// each.
struct Pair {
  double measured = 0, promised = 0;

  explicit operator bool() const { return measured > 0 && promised > 0; }
  std::optional<double> factor() const { return *this ? std::optional(measured / promised) : std::nullopt; }
};

Pair operator+(const Pair& a, const Pair& b) { return {a.measured + b.measured, a.promised + b.promised}; }

/// The operations of one stage.
class StageOperations {
 public:
  StageOperations(const MeasuredRun& run, const Prediction& promised, StageId stage, const OperationCost& fixed)
      : run_(run), promised_(promised), stage_(stage), fixed_(fixed) {}

  Pair of(OpKind kind) const {
    const auto found = std::ranges::find_if(run_.operations, [&](const MeasuredRun::Operation& operation) {
      return operation.kind == kind && operation.stage == stage_;
    });
    if (found == run_.operations.end()) return {};
    const Pair whole{found->median.count(), promised_time(run_.plan, promised_, kind, stage_).count()};
    const double fixed = fixed_of(kind);
    const Pair layers{whole.measured - fixed, whole.promised - fixed};
    return layers ? layers : whole;
  }

 private:
  double fixed_of(OpKind kind) const {
    if (kind == OpKind::forward) return fixed_.forward;
    return kind == OpKind::update ? 0 : fixed_.backward;
  }

  const MeasuredRun& run_;
  const Prediction& promised_;
  StageId stage_;
  OperationCost fixed_;
};

StageFactors stage_factors(const std::vector<std::string>& layers, const StageOperations& operations) {
  StageFactors factors{layers,
                       operations.of(OpKind::forward).factor(),
                       operations.of(OpKind::backward).factor(),
                       operations.of(OpKind::input_gradient).factor(),
                       operations.of(OpKind::weight_gradient).factor(),
                       operations.of(OpKind::update).factor()};
  const Pair halves = operations.of(OpKind::input_gradient) + operations.of(OpKind::weight_gradient);
  if (!factors.backward) factors.backward = halves.factor();
  if (!factors.input_gradient) factors.input_gradient = factors.backward;
  if (!factors.weight_gradient) factors.weight_gradient = factors.backward;
  return factors;
}

using Factor = std::optional<double> StageFactors::*;
constexpr std::array<Factor, 4> kLayerFactors{&StageFactors::forward, &StageFactors::backward,
                                              &StageFactors::input_gradient, &StageFactors::weight_gradient};

/// 1 without factors; of an even number the mean of the two in the middle.
double median(std::vector<double> factors) {
  if (factors.empty()) return 1;
  std::ranges::sort(factors);
  const std::size_t half = factors.size() / 2;
  return factors.size() % 2 == 1 ? factors[half] : (factors[half - 1] + factors[half]) / 2;
}

void scale(TimeStat& time, double factor) {
  for (Seconds* part : {&time.median, &time.low, &time.high}) *part *= factor;
}

/// The factors of the stages in which a layer stood.
using Stood = std::vector<const StageFactors*>;

double median_of(const Stood& stages, Factor member) {
  std::vector<double> factors;
  for (const StageFactors* stage : stages) {
    if (const auto& factor = stage->*member) factors.push_back(*factor);
  }
  return median(std::move(factors));
}

void scale(LayerProfile& layer, const Stood& stages) {
  const double forward = median_of(stages, &StageFactors::forward),
               backward = median_of(stages, &StageFactors::backward),
               input_gradient = median_of(stages, &StageFactors::input_gradient),
               weight_gradient = median_of(stages, &StageFactors::weight_gradient);
  for (LayerPoint& point : layer.points) {
    scale(point.forward, forward);
    scale(point.backward, backward);
    if (point.input_gradient) scale(*point.input_gradient, input_gradient);
    if (point.weight_gradient) scale(*point.weight_gradient, weight_gradient);
    for (std::optional<LayerTimes>* times : {&point.first, &point.alone, &point.in_part}) {
      if (!*times) continue;
      scale((*times)->forward, forward);
      scale((*times)->backward, backward);
      scale((*times)->input_gradient, input_gradient);
      scale((*times)->weight_gradient, weight_gradient);
    }
  }
}

}  // namespace

RunFactors factors_of(const MeasuredRun& run, const Profile& profile) {
  check_run(run, profile);
  const Prediction promised = predict(run.plan, profile, cluster_of(run.plan));
  RunFactors factors{run.hash, {}, run.plan.training.optimizer, {}};
  Pair updates;
  for (std::size_t s = 0; s < run.plan.stages.size(); ++s) {
    const Stage& stage = run.plan.stages[s];
    OperationCost fixed;
    if (profile.operation_overhead) {
      const double speed = slowest_speed(run.plan, stage);
      fixed = {profile.operation_overhead->forward.median.count() / speed,
               profile.operation_overhead->backward.median.count() / speed};
    }
    const StageOperations operations(run, promised, StageId{static_cast<int>(s)}, fixed);
    factors.stages.push_back(stage_factors(stage.layers, operations));
    if (const Pair update = operations.of(OpKind::update)) updates = updates + update;
  }
  factors.update = updates.factor();
  const auto forwards = [](const StageFactors& stage) { return stage.forward.has_value(); };
  if (std::ranges::none_of(factors.stages, forwards))
    refuse("/op_times: has no measured forward; calibrate with a run of some steps");
  return factors;
}

Profile calibrated(const Profile& profile, std::span<const RunFactors> runs) {
  std::map<std::string_view, Stood> stood;
  Stood last;
  std::map<std::string_view, std::vector<double>> updates;  // by the optimizer of the profile
  for (const RunFactors& run : runs) {
    for (const StageFactors& stage : run.stages) {
      for (const std::string& layer : stage.layers) stood[layer].push_back(&stage);
    }
    last.push_back(&run.stages.back());
    const OptimizerProfile* measured = profiled_optimizer(profile, run.optimizer);
    if (run.update && measured != nullptr) updates[measured->name].push_back(*run.update);
  }
  Profile result = profile;
  for (LayerProfile& layer : result.layers) scale(layer, stood[layer.name]);
  if (result.loss) scale(*result.loss, last);
  for (OptimizerProfile& optimizer : result.optimizers) {
    const double factor = median(updates[optimizer.name]);
    scale(optimizer.update, factor);
    for (UpdatePoint& part : optimizer.parts) scale(part.update, factor);
    if (optimizer.new_version) scale(optimizer.new_version->update, factor);
  }
  return result;
}

Calibration summary_of(std::span<const RunFactors> runs) {
  Calibration summary{{}, std::numeric_limits<double>::infinity(), 0};
  const auto add = [&](const std::optional<double>& factor) {
    if (!factor) return;
    summary.least = std::min(summary.least, *factor);
    summary.largest = std::max(summary.largest, *factor);
  };
  for (const RunFactors& run : runs) {
    summary.reports.push_back(run.report);
    for (const StageFactors& stage : run.stages) {
      for (const Factor member : kLayerFactors) add(stage.*member);
    }
    add(run.update);
  }
  return summary;
}

}  // namespace pp::plan
