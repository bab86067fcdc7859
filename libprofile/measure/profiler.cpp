// A profile in the making: bytes, times and updates of a part of the model, and the document from them; or so
// for each layer alone on random inputs, for a model that does not fit as a whole.
#include "libprofile/measure/profiler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/cuda_devices.h"
#include "libprofile/device/machine.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/device/process.h"
#include "libprofile/device/reference_kernel.h"
#include "libprofile/measure/findings.h"
#include "libprofile/measure/profile_run.h"
#include "libprofile/measure/steps.h"
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
  UpdateTimes(ProfiledDevices& devices, const Subject& subject, OptimizerName optimizer)
      : devices_(devices), subject_(subject), optimizer_(optimizer) {}

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
        own.push_back({range.begin, range.end, make()});
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
      ranges[d].push_back({0, runners[d]->layers(), make(), /*new_version=*/true});
    const UpdateRange& first = ranges.front().front();
    const Bytes parameters = runners.front()->trained_bytes(first);
    if (parameters == Bytes(0)) return std::nullopt;
    time(runners, ranges);
    return UpdatePoint{parameters, summarise(first.seconds)};
  }

 private:
  std::unique_ptr<model::Optimizer> make() const {
    const double decay = optimizer_ == OptimizerName::adamw ? 0.01 : 0;
    return std::make_unique<model::Optimizer>(optimizer_, OptimizerSettings{}, decay);
  }

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
  OptimizerName optimizer_;
};

OptimizerProfile measure_optimizer(OptimizerName name, UpdateTimes times, int devices) {
  OptimizerProfile profile;
  profile.name = name_of(name);
  profile.state_bytes_per_parameter_byte = state_ratio_of(name);
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

LayerProfile layer_profile(const Subject& subject, int position, Bytes buffers) {
  LayerProfile layer;
  if (position == static_cast<int>(subject.part.layers.size())) {
    layer.name = "loss";
    layer.forward_flops_per_sample = subject.model.loss.forward_flops;
    return layer;
  }
  const int index = subject.part.layers[static_cast<std::size_t>(position)];
  layer.name = subject.model.graph.layers[static_cast<std::size_t>(index)].name;
  set_parameters(layer, subject.model, index, subject.options.dtype);
  layer.buffers = buffers;
  layer.forward_flops_per_sample = subject.model.layers[static_cast<std::size_t>(index)].forward_flops;
  return layer;
}

LayerPoint layer_point(const MeasuredSize& size, const LayerSamples& samples, int position) {
  LayerPoint point;
  point.micro_batch_size = size.micro_batch_size;
  point.out_of_memory = size.out_of_memory;
  if (size.out_of_memory) return point;
  const auto p = static_cast<std::size_t>(position);
  samples.fill_times(position, point);
  point.output = size.bytes.outputs[p];
  point.saved = size.bytes.saved[p].total;
  point.saved_input = size.bytes.saved[p].own_input;
  point.workspace = size.bytes.workspace[p];
  point.waiting = size.bytes.waiting[p];
  return point;
}

Context context_of(const Subject& subject, const MeasuredBytes& bytes, const MeasuredTimes& times) {
  Context context = subject.environment.context;
  context.insert(times.findings.begin(), times.findings.end());
  std::string in_flight;
  for (std::size_t i = 0; i < bytes.sizes.size(); ++i) {
    if (bytes.sizes[i].out_of_memory) continue;
    if (!in_flight.empty()) in_flight += ",";
    in_flight += std::to_string(times.in_flight[i]);
  }
  context["devices"] = to_text(subject.options.devices);
  context["micro_batches_in_flight"] = in_flight;
  return context;
}

/// The third step of a profile, what updates take: of sgd with momentum and of adamw, at learning rate 0,
/// behind training passes of the first size. None where the subject's part has no trained parameters. An
/// optimizer whose state does not fit is left out, with a warning.
std::vector<OptimizerProfile> measure_updates(ProfiledDevices& devices, const Subject& subject) {
  Bytes parameters;
  for (const int layer : subject.part.layers)
    parameters += trained_bytes(subject.model, layer, subject.options.dtype);
  if (parameters == Bytes(0)) return {};
  std::vector<OptimizerProfile> measured;
  constexpr auto kCount = static_cast<double>(kMeasuredOptimizers.size());
  double done = 0;
  for (const OptimizerName name : kMeasuredOptimizers) {
    subject.observer.progress("timing optimizers", done / kCount,
                              (kCount - done) * budget_of_optimizer(subject.options));
    ++done;
    try {
      measured.push_back(measure_optimizer(name, {devices, subject, name}, devices.count()));
    } catch (const model::OutOfMemory&) {
      subject.observer.warning("the state of " + std::string(name_of(name)) +
                               " does not fit into the device's " + to_text(devices.account().limit()) +
                               ": left out of the profile; train with the other optimizer, or profile on more "
                               "memory");
    }
  }
  return measured;
}

/// `layers` of the document are those of the subject's part. The kernels that are `known` are not chosen again.
/// Throws model::OutOfMemory when the smallest size does not fit, pp::Error (run) when the model cannot run.
Profile profile_part(const Subject& subject, std::vector<KernelChoice> known = {}) {
  ProfiledDevices devices(subject, sizes_to_measure(subject.options));
  const MeasuredBytes bytes = measure_bytes(devices, subject, std::move(known));
  const MeasuredTimes times = measure_times(devices, subject, bytes);

  Profile profile;
  profile.optimizers = measure_updates(devices, subject);
  profile.context = context_of(subject, bytes, times);
  profile.model = subject.model.graph;
  profile.model_hash = model_hash(profile.model);
  profile.device = described(subject.options.devices);
  profile.device.memory = devices.account().limit();
  profile.dtype = subject.options.dtype;
  profile.memory_format = subject.options.memory_format;
  profile.autocast = subject.options.autocast;
  profile.kernels = bytes.kernels;
  const std::vector<Bytes> buffers = devices.whole().front()->buffer_bytes();
  for (int position = 0; position < subject.part.positions(); ++position) {
    const bool is_loss = position == static_cast<int>(subject.part.layers.size());
    LayerProfile layer =
        layer_profile(subject, position, is_loss ? Bytes(0) : buffers[static_cast<std::size_t>(position)]);
    for (std::size_t i = 0; i < bytes.sizes.size(); ++i)
      layer.points.push_back(layer_point(bytes.sizes[i], times.samples[i], position));
    if (is_loss) {
      profile.loss = std::move(layer);
    } else {
      profile.layers.push_back(std::move(layer));
    }
  }
  for (std::size_t i = 0; i < bytes.sizes.size(); ++i) {
    profile.micro_batch_sizes.push_back(bytes.sizes[i].micro_batch_size);
    if (bytes.sizes[i].out_of_memory) continue;
    WholeModelPoint& point = profile.whole_model.emplace_back();
    point.micro_batch_size = bytes.sizes[i].micro_batch_size;
    times.samples[i].fill_times(point);
    point.peak = bytes.sizes[i].bytes.peak;
  }
  return profile;
}

/// Progress of one layer as progress of all.
class PartObserver final : public Observer {
 public:
  PartObserver(Observer& whole, int part, int parts) : whole_(whole), part_(part), parts_(parts) {}
  void progress(std::string_view phase, double done, Seconds remaining) override {
    const double rest = parts_ - part_ - 1;
    const Seconds each = done < 1 ? remaining / (1 - done) : remaining;
    whole_.progress(phase, (part_ + done) / parts_, remaining + rest * each);
  }
  void warning(std::string_view text) override { whole_.warning(text); }

 private:
  Observer& whole_;
  int part_, parts_;
};

/// The update of all layers takes as long as those of each together.
void add_optimizers(std::vector<OptimizerProfile>& sums, const std::vector<OptimizerProfile>& added) {
  for (const OptimizerProfile& one : added) {
    const auto sum = std::find_if(sums.begin(), sums.end(), [&](const auto& s) { return s.name == one.name; });
    if (sum == sums.end()) {
      sums.push_back(one);
      continue;
    }
    sum->parameters += one.parameters;
    sum->parts.insert(sum->parts.end(), one.parts.begin(), one.parts.end());
    sum->update = together(sum->update, one.update);
  }
}

/// One profile in the making per layer, the loss with the last one; `options.budget_per_size` is for all layers
/// together. A layer's sizes that do not fit are its own points. Throws as profile_model(); when a layer does
/// not fit at any size, too.
Profile profile_layers_alone(const ResolvedModel& model, const ProfileOptions& options, Observer& observer,
                             const Environment& environment) {
  const int layers = model.layer_count();
  ProfileOptions each = options;
  each.budget_per_size = options.budget_per_size / layers;
  Profile profile;
  for (int layer = 0; layer < layers; ++layer) {
    PartObserver part_observer(observer, layer, layers);
    const bool with_loss = layer + 1 == layers && model.graph.loss.has_value();
    Profile part =
        profile_part({model, {{layer}, with_loss}, each, part_observer, environment}, profile.kernels);
    if (layer == 0) {
      profile = std::move(part);
      continue;
    }
    profile.layers.push_back(std::move(part.layers.front()));
    profile.loss = std::move(part.loss);
    add_optimizers(profile.optimizers, part.optimizers);
    profile.kernels = std::move(part.kernels);
  }
  profile.mode = ProfileMode::isolated;
  profile.whole_model.clear();
  profile.estimated.emplace_back("saved_bytes");
  for (const char* key : {"outliers", "reference_kernel_change"}) profile.context.erase(key);
  return profile;
}

void check_sizes(const std::vector<std::int64_t>& sizes) {
  const auto fail = [](const std::string& message) {
    throw Error(ErrorKind::usage, "micro-batch sizes: " + message);
  };
  if (sizes.empty()) fail("none given; name at least one, such as 1,2,4");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) fail(std::to_string(sizes[i]) + " must be at least 1; leave it out");
    if (i > 0 && sizes[i] <= sizes[i - 1]) {
      fail(std::to_string(sizes[i]) + " after " + std::to_string(sizes[i - 1]) +
           " must be larger; name each size once, rising");
    }
  }
}

void check_options(const ProfileOptions& options, const MachineDevices& machine) {
  if (options.size_choice == SizeChoice::listed) check_sizes(options.micro_batch_sizes);
  if (options.size_choice == SizeChoice::automatic && options.mode == ProfileMode::isolated) {
    throw Error(ErrorKind::usage,
                "micro-batch sizes: auto would choose others for each layer alone; list them, such as 1,2,4");
  }
  parse_device_set(to_text(options.devices), machine);  // refuses what does not exist
  if (!is_floating(options.dtype)) {
    throw Error(ErrorKind::usage, "dtype " + std::string(name_of(options.dtype)) +
                                      " has no gradients; use float32, float64 or bfloat16");
  }
  if (options.autocast && options.dtype != DType::float32) {
    throw Error(ErrorKind::usage, "autocast casts products of float32 weights, and dtype is " +
                                      std::string(name_of(options.dtype)) + "; leave one of them out");
  }
  if (options.autocast && options.mode == ProfileMode::isolated) {
    throw Error(ErrorKind::usage,
                "autocast: types of a layer's inputs follow from the layers before it, which mode isolated "
                "does not run; profile in-place, or without autocast");
  }
  if (!memory_meter_installed()) {
    throw Error(ErrorKind::internal, "profiler: bytes are not counted; call prepare_process() first in main");
  }
}

/// Failures of the first pass belong to the model or the machine, not to the measurement.
[[noreturn]] void rethrow_as_input_error(const model::OutOfMemory* out_of_memory, const Error& error,
                                         const Environment& environment, int devices) {
  if (out_of_memory == nullptr) {
    throw Error(ErrorKind::data,
                std::string(error.what()) + "; correct the model, or leave this micro-batch size out");
  }
  throw Error(ErrorKind::device, std::string(error.what()) + "; each of " + std::to_string(devices) +
                                     " devices has " + to_text(Bytes(environment.memory.value / devices)) +
                                     ": profile a smaller model or size, or fewer devices at once");
}

}  // namespace

Profile profile_model(const ModelGraph& model, const ProfileOptions& options, Observer& observer,
                      const Environment& environment) {
  check_options(options, environment.machine);
  const ResolvedModel resolved = resolve(model);
  const int cores = static_cast<int>(environment.machine.cores.size());
  for (const std::string& finding :
       conditions_findings(options.devices, cores, environment.load, environment.cache_loss)) {
    observer.warning(finding);
  }
  Profile profile;
  try {
    profile = options.mode == ProfileMode::isolated
                  ? profile_layers_alone(resolved, options, observer, environment)
                  : profile_part({resolved, whole_model(resolved), options, observer, environment});
  } catch (const model::OutOfMemory& error) {
    rethrow_as_input_error(&error, error, environment, options.devices.count);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::run) throw;
    rethrow_as_input_error(nullptr, error, environment, options.devices.count);
  }
  for (const std::string& finding : profile_findings(profile)) observer.warning(finding);
  return profile;
}

Profile profile_model(const ModelGraph& model, const ProfileOptions& options, Observer& observer) {
  const SteadyClock clock;
  const DeviceSet& devices = options.devices;
  const bool cuda = devices.kind == DeviceKind::cuda && devices.first < cuda_device_count();
  Environment environment{.clock = clock,
                          .machine = machine_devices(),
                          .memory = cuda ? cuda_device_memory(devices.first) : machine_memory(),
                          .load = machine_load(),
                          .context = measurement_context()};
  if (devices.kind == DeviceKind::cpu) {
    environment.cache_loss = cache_loss(clock);
    environment.context["cache_loss"] = std::to_string(std::lround(100 * *environment.cache_loss)) + " %";
  }
  return profile_model(model, options, observer, environment);
}

}  // namespace pp::profile
