#include "libprofile/measure/measure_updates.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "libprofile/measure/sampling_options.h"
#include "libprofile/measure/statistics.h"
#include "libprofile/model/errors.h"

namespace pp::profile {
namespace {

constexpr Seconds kUpdateVisit{0.03};  // steps that are timed between two looks at the stopping rule
constexpr int kMostSteps = 32;         // of a visit
constexpr int kUpdatePieces = 4;       // the model's layers as one stage, two, four
constexpr int kUpdateMeasurements = std::bit_width(unsigned{kUpdatePieces}) + 2;  // all at once, new versions

using Ranges = std::vector<std::vector<UpdateRange>>;  // per device

/// The updates of one optimizer.
class UpdateTimes {
 public:
  UpdateTimes(ProfiledDevices& devices, const Subject& subject,
              const std::function<std::unique_ptr<model::Optimizer>()>& make)
      : devices_(devices), subject_(subject), make_(make) {}

  /// All parameters, in as many ranges of layers, on so many devices at once while the others idle; ranges
  /// without parameters are left out.
  std::vector<UpdatePoint> of_pieces(int pieces, int devices) {
    const ModelRunner& runner = *devices_.whole().front();
    const int layers = static_cast<int>(subject_.part.layers.size());
    Ranges ranges(devices_.whole().size());
    for (int piece = 0; piece < pieces; ++piece) {
      const UpdateRange range{.begin = piece * layers / pieces, .end = (piece + 1) * layers / pieces};
      if (runner.trained_bytes(range) == Bytes(0)) continue;
      for (auto& own : std::span(ranges).first(static_cast<std::size_t>(devices)))
        own.push_back({range.begin, range.end, make_()});
    }
    time(devices_.whole(), ranges);
    std::vector<UpdatePoint> points;
    for (const UpdateRange& range : ranges.front())
      points.push_back({runner.trained_bytes(range), summarise(range.seconds)});
    return points;
  }

  /// Each device its part of the model, where there are parts, into other memory. Nothing where the first one
  /// has no parameters.
  std::optional<UpdatePoint> of_new_version() {
    const ProfiledDevices::Runners& runners = devices_.parts().empty() ? devices_.whole() : devices_.parts();
    Ranges ranges(runners.size());
    for (std::size_t d = 0; d < runners.size(); ++d)
      ranges[d].push_back({0, runners[d]->layers(), make_(), /*new_version=*/true});
    const UpdateRange& first = ranges.front().front();
    const Bytes parameters = runners.front()->trained_bytes(first);
    if (parameters == Bytes(0)) return std::nullopt;
    time(runners, ranges);
    return UpdatePoint{parameters, summarise(first.seconds)};
  }

 private:
  /// Every device that has ranges, until enough is known of the first device's first one.
  void time(const ProfiledDevices::Runners& runners, Ranges& ranges) {
    const StoppingRule rule = rule_of_updates(subject_.options, kUpdateMeasurements);
    const Clock& clock = subject_.environment.clock;
    const auto visit = [&](int dropped, int steps) {
      const Seconds start = clock.now();
      devices_.run([&](int device, ModelRunner& /*whole*/) {
        const auto d = static_cast<std::size_t>(device);
        if (!ranges[d].empty()) runners[d]->time_updates(/*size=*/0, ranges[d], dropped, steps);
      });
      return clock.now() - start;
    };
    const std::vector<double>& seconds = ranges.front().front().seconds;
    Seconds step_time = visit(rule.warm_up_passes, 0) / rule.warm_up_passes;
    Series series;
    while (!is_enough(rule, {&series, 1}, series.spent)) {
      const double fitting = kUpdateVisit / std::max(step_time, Seconds(1e-9));
      const int steps = static_cast<int>(std::clamp(fitting, 1.0, double{kMostSteps}));
      const std::size_t before = seconds.size();
      const Seconds duration = visit(/*dropped=*/0, steps);
      series.add(std::span(seconds).subspan(before), duration);
      step_time = duration / steps;
    }
  }

  ProfiledDevices& devices_;
  const Subject& subject_;
  const std::function<std::unique_ptr<model::Optimizer>()>& make_;
};

OptimizerProfile measure_optimizer(const std::string& name, UpdateTimes times, double state_ratio,
                                   int devices) {
  OptimizerProfile profile;
  profile.name = name;
  profile.state_bytes_per_parameter_byte = state_ratio;
  for (int pieces = 1; pieces <= kUpdatePieces; pieces *= 2) {
    const std::vector<UpdatePoint> points = times.of_pieces(pieces, /*devices=*/1);
    profile.parts.insert(profile.parts.end(), points.begin(), points.end());
  }
  const UpdatePoint all = devices > 1 ? times.of_pieces(1, devices).front() : profile.parts.front();
  profile.parameters = all.parameters;
  profile.update = all.update;
  try {
    profile.new_version = times.of_new_version();
  } catch (const model::OutOfMemory&) {  // no room for a second version
  }
  return profile;
}

}  // namespace

std::vector<OptimizerProfile> measure_updates(ProfiledDevices& devices, const Subject& subject) {
  Bytes parameters;
  for (const int layer : subject.part.layers)
    parameters += trained_bytes(subject.model, layer, subject.options.dtype);
  if (parameters == Bytes(0)) return {};
  using Make = std::function<std::unique_ptr<model::Optimizer>()>;
  const std::array<std::pair<std::string, Make>, kOptimizers> all{
      {{"sgd", [] { return model::make_sgd({.momentum = 0.9}); }},
       {"adamw", [] { return model::make_adamw({.weight_decay = 0.01}); }}}};
  std::vector<OptimizerProfile> measured;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, make] = all[i];
    subject.observer.progress("timing optimizers", static_cast<double>(i) / static_cast<double>(all.size()),
                              static_cast<double>(all.size() - i) * budget_of_optimizer(subject.options));
    try {
      measured.push_back(
          measure_optimizer(name, {devices, subject, make}, make()->state_ratio(), devices.count()));
    } catch (const model::OutOfMemory&) {
      subject.observer.warning("the state of " + name + " does not fit into the device's " +
                               to_text(devices.account().limit()) +
                               ": left out of the profile; train with the other optimizer, or profile on more "
                               "memory");
    }
  }
  return measured;
}

}  // namespace pp::profile
