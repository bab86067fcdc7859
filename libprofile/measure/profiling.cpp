#include "libprofile/measure/profiling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "libprofile/device/cores.h"
#include "libprofile/device/reference_kernel.h"
#include "libprofile/measure/findings.h"
#include "libprofile/measure/kernel_timing.h"
#include "libprofile/measure/model_parts.h"
#include "libprofile/measure/reference_drift.h"
#include "libprofile/measure/statistics.h"
#include "libprofile/model/errors.h"

namespace pp::profile {
namespace {

constexpr Seconds kUpdateVisit{0.03};  // steps that are timed between two looks at the stopping rule
constexpr int kUpdatePieces = 4;       // the model's layers as one stage, two, four
constexpr int kUpdateMeasurements = std::bit_width(unsigned{kUpdatePieces}) + 2;  // all at once, new versions

StoppingRule rule_of(const ProfileOptions& options, Seconds budget) {
  return {.min_samples = options.min_samples,
          .max_samples = options.max_samples,
          .min_time = options.min_time,
          .precision = options.precision,
          .budget = budget};
}

std::vector<std::int64_t> sizes_of(const ProfileOptions& options) {
  if (options.size_choice == SizeChoice::listed) return options.micro_batch_sizes;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= kLargestAutomaticSize; size *= 2) sizes.push_back(size);
  return sizes;
}

Bytes memory_per_device(const ProfileOptions& options, const Environment& environment) {
  return Bytes(environment.memory.value / options.devices.count);
}

/// As many micro-batches as there are devices, or as many as fit beside one another; at least the one that was
/// run.
int micro_batches_in_flight(const PassBytes& bytes, Bytes limit, int devices) {
  if (bytes.kept.value <= 0) return devices;
  const std::int64_t fitting = 1 + (limit - bytes.peak).value / bytes.kept.value;
  return static_cast<int>(std::clamp<std::int64_t>(fitting, 1, devices));
}

}  // namespace

Profiling::Profiling(const ResolvedModel& model, ModelPart part, const ProfileOptions& options,
                     Observer& observer, const Environment& environment)
    : model_(model),
      part_(std::move(part)),
      options_(options),
      observer_(observer),
      environment_(environment),
      probes_(static_cast<std::size_t>(options.devices.count)),
      runners_(static_cast<std::size_t>(options.devices.count)),
      gang_(options.devices.count, [this](int device) { enter(device); }) {
  for (const std::int64_t n : sizes_of(options)) {
    sizes_.push_back({.micro_batch_size = n, .bytes = {}, .samples = LayerSamples(part_.positions())});
  }
  for (int device = 0; device < options.devices.count; ++device) {
    accounts_.emplace_back(memory_per_device(options, environment));
  }
  gang_.run([&](int device) {
    const std::size_t d = static_cast<std::size_t>(device);
    const ChargeMemory host(host_memory_), charged(accounts_[d], options.devices.kind);
    runners_[d] = make_runner(part_, d);
  });
}

std::unique_ptr<ModelRunner> Profiling::make_runner(const ModelPart& part, std::size_t device) {
  std::unique_ptr<ModelRunner> runner;
  std::vector<std::int64_t> sizes;
  for (const Size& size : sizes_) sizes.push_back(size.micro_batch_size);
  model::detail::guarded([] { return "weights and gradients"; },
                         [&] {
                           runner = std::make_unique<ModelRunner>(
                               model_, part, std::move(sizes), options_.dtype, options_.memory_format,
                               options_.seed, accounts_[device], this->device(), *probes_[device].timer);
                         });
  return runner;
}

void Profiling::enter(int device) {
  const DeviceSet& devices = options_.devices;
  if (devices.kind == DeviceKind::cpu) pin_thread(cores_of(devices, device, environment_.machine.cores));
  enter_device(this->device(), std::max(1, devices.cores));
  take_library_memory(this->device());
  probes_[static_cast<std::size_t>(device)] = make_probes(this->device(), environment_.clock);
}

void Profiling::on_devices(const std::function<void(int device, ModelRunner& runner)>& work) {
  gang_.run([&](int device) {
    const std::size_t d = static_cast<std::size_t>(device);
    const ChargeMemory host(host_memory_), charged(accounts_[d], options_.devices.kind);
    work(device, *runners_[d]);
  });
}

PassBytes Profiling::measure_bytes_at(std::size_t size) {
  PassBytes bytes;
  on_devices([&](int device, ModelRunner& runner) {
    PassBytes own = runner.measure_bytes(size);
    if (device == 0) bytes = std::move(own);
  });
  return bytes;
}

/// Before the byte passes of size `size`: what it and the sizes after it will take if passes grow as the sizes
/// do, and the timing of all.
Seconds Profiling::remaining_before(std::size_t size) const {
  const StoppingRule rule = rule_of(options_, options_.budget_per_size);
  Seconds total = 2 * optimizer_budget();
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    Seconds pass_time = sizes_[i].pass_time;
    if (i >= size) {
      if (size > 0) {
        const Size& known = sizes_[size - 1];
        const auto samples = [](const Size& s) { return static_cast<double>(s.micro_batch_size); };
        pass_time = known.pass_time * (samples(sizes_[i]) / samples(known));
      }
      total += kBytePasses * pass_time;
    }
    total += expected_time(rule, pass_time, kPassKinds);
  }
  return total;
}

/// On all devices at once, each on its cores; the first one's times count.
void Profiling::choose_kernels(std::size_t size) {
  if (options_.kernels == KernelPolicy::mkl || device().is_cuda()) return;
  std::vector<KernelChoice> choices;
  on_devices([&](int device, ModelRunner& runner) {
    const model::KernelKeys keys = runner.kernel_keys(size);
    const ChargeMemory nobody{MemoryAccount()};
    std::vector<KernelChoice> own = options_.kernels == KernelPolicy::onednn
                                        ? onednn_kernels(keys, kernels_)
                                        : time_kernels(keys, kernels_, environment_.clock);
    if (device == 0) choices = std::move(own);
  });
  kernels_ = std::move(choices);
  use_kernels(runners_);
}

void Profiling::use_kernels(const Runners& runners) const {
  const auto chosen = std::make_shared<const model::Kernels>(kernels_);
  for (const std::unique_ptr<ModelRunner>& runner : runners) runner->use(chosen);
}

void Profiling::measure_bytes(std::vector<KernelChoice> known) {
  kernels_ = std::move(known);
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    Size& size = sizes_[i];
    observer_.progress("counting bytes", static_cast<double>(i) / static_cast<double>(sizes_.size()),
                       remaining_before(i));
    const std::string text = "micro-batch size " + std::to_string(size.micro_batch_size);
    Seconds start{};
    try {
      with_context(text, [&] {
        choose_kernels(i);
        on_devices([&](int, ModelRunner& runner) { runner.warm_up(i); });
        start = environment_.clock.now();
        size.bytes = measure_bytes_at(i);
      });
    } catch (const model::OutOfMemory&) {
      if (i == 0) throw;
      return give_up_from(i);
    }
    size.pass_time = (environment_.clock.now() - start) / kBytePasses;
    if (options_.size_choice == SizeChoice::automatic && is_last(size))
      sizes_.erase(sizes_.begin() + static_cast<std::ptrdiff_t>(i) + 1, sizes_.end());
  }
}

/// Where the sizes were asked for, all of them stay as points; of automatic ones the first that does not fit.
void Profiling::give_up_from(std::size_t size) {
  for (std::size_t above = size; above < sizes_.size(); ++above) sizes_[above].out_of_memory = true;
  if (options_.size_choice == SizeChoice::automatic) {
    sizes_.erase(sizes_.begin() + static_cast<std::ptrdiff_t>(size) + 1, sizes_.end());
    return;
  }
  observer_.warning("micro-batch size " + std::to_string(sizes_[size].micro_batch_size) +
                    " and above do not fit into the device's " + to_text(accounts_.front().limit()) +
                    ": recorded as out of memory; leave these sizes out");
}

bool Profiling::is_last(const Size& size) const {
  const StoppingRule rule = rule_of(options_, options_.budget_per_size);
  return expected_time(rule, 2 * size.pass_time, parts().empty() ? kKindsOfWhole : kPassKinds) > rule.budget;
}

/// What each device runs of the model where they share it; none where they do not.
std::vector<ModelPart> Profiling::parts() const {
  if (part_.positions() != whole_model(model_).positions()) return {};
  return model_parts(model_, options_.devices.count);
}

void Profiling::make_parts() {
  const std::vector<ModelPart> parts = this->parts();
  if (parts.empty()) return;
  parts_.resize(runners_.size());
  try {
    on_devices([&](int device, ModelRunner&) {
      const std::size_t d = static_cast<std::size_t>(device);
      parts_[d] = make_runner(parts[d], d);
      for (std::size_t i = 0; i < sizes_.size(); ++i) {
        if (sizes_[i].out_of_memory) continue;
        parts_[d]->make_batch(i);
        parts_[d]->vary_boundaries(i);
      }
    });
    use_kernels(parts_);
    if (parts_fit()) return;
  } catch (const model::OutOfMemory&) {
  }
  parts_.clear();
  observer_.warning(
      "memory does not hold the model beside a part of it: times are those of devices that hold the whole "
      "model each, for pipelines too; profile smaller sizes, or fewer devices at once");
}

/// Beside the passes of the whole model.
bool Profiling::parts_fit() const {
  return std::ranges::all_of(sizes_, [&](const Size& size) {
    const Bytes in_flight(size.bytes.kept.value * (size.in_flight - 1));
    return size.out_of_memory || std::ranges::all_of(accounts_, [&](const MemoryAccount& account) {
             return account.live() + size.bytes.peak + in_flight <= account.limit();
           });
  });
}

/// On all devices at once, or on the first one alone. Times of the whole model are the first device's.
VisitTimes Profiling::run_visit(const Visit& visit, std::vector<double>& reference) {
  const int devices = options_.devices.count;
  const int in_pipeline = sizes_[visit.size].in_flight, of_whole = parts_.empty() ? in_pipeline : 1;
  std::vector<VisitTimes> times(static_cast<std::size_t>(devices));
  on_devices([&](int device, ModelRunner& whole) {
    if (device > 0 && is_alone(visit.kind)) return;
    const std::size_t d = static_cast<std::size_t>(device);
    const double reference_time = time_reference(*probes_[d].timer, probes_[d].reference);
    if (device == 0) reference.push_back(reference_time);
    times[d] = in_parts(visit.kind) ? parts_[d]->run_visit(visit, std::min(in_pipeline, devices - device))
                                    : whole.run_visit(visit, of_whole);
  });
  return in_parts(visit.kind) ? joined(times) : std::move(times.front());
}

void Profiling::choose_in_flight() {
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (sizes_[i].out_of_memory) continue;
    const Bytes free = accounts_.front().limit() - runners_.front()->bytes_of_idle_batches(i);
    sizes_[i].in_flight = micro_batches_in_flight(sizes_[i].bytes, free, options_.devices.count);
  }
}

void Profiling::measure_times() {
  choose_in_flight();
  make_parts();
  std::vector<std::optional<Seconds>> pass_times;
  for (const Size& size : sizes_) {
    pass_times.push_back(size.out_of_memory ? std::nullopt : std::optional(size.pass_time));
  }
  std::vector<double> reference;
  Rounds rounds(rule_of(options_, options_.budget_per_size), pass_times,
                parts_.empty() ? kKindsOfWhole : kPassKinds);
  while (const std::optional<Visit> visit = rounds.next()) {
    const Seconds start = environment_.clock.now();
    const VisitTimes times = run_visit(*visit, reference);
    const Seconds duration = environment_.clock.now() - start;
    sizes_[visit->size].samples.add(times, visit->kind);
    rounds.report(*visit, pass_seconds(times), duration);
    observer_.progress("timing layers", rounds.done(), rounds.remaining() + 2 * optimizer_budget());
  }
  report_interruptions(rounds, reference);
}

void Profiling::report_interruptions(const Rounds& rounds, std::span<const double> reference) {
  int outliers = 0, passes = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const std::span<const double> samples = rounds.samples(i, PassKind::whole);
    outliers += count_outliers(samples);
    passes += static_cast<int>(samples.size());
  }
  findings_["outliers"] = std::to_string(outliers) + " of " + std::to_string(passes);
  if (const auto change = reference_change(reference)) {
    findings_["reference_kernel_change"] = std::to_string(std::lround(100 * *change)) + " %";
  }
  if (const auto finding = outlier_finding(outliers, passes)) observer_.warning(*finding);
  if (const auto finding = reference_finding(reference)) observer_.warning(*finding);
}

void Profiling::measure_optimizers() {
  Bytes parameters;
  for (const int layer : part_.layers) parameters += trained_bytes(model_, layer, options_.dtype);
  if (parameters == Bytes(0)) return;
  const auto sgd = [] { return model::make_sgd({.momentum = 0.9}); };
  const auto adamw = [] { return model::make_adamw({.weight_decay = 0.01}); };
  const std::vector<std::pair<std::string, MakeOptimizer>> all{{"sgd", sgd}, {"adamw", adamw}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    observer_.progress("timing optimizers", static_cast<double>(i) / static_cast<double>(all.size()),
                       static_cast<double>(all.size() - i) * optimizer_budget());
    try {
      optimizers_.push_back(measure_optimizer(all[i].first, all[i].second));
    } catch (const model::OutOfMemory&) {
      observer_.warning("the state of " + all[i].first + " does not fit into the device's " +
                        to_text(accounts_.front().limit()) +
                        ": left out of the profile; train with the other optimizer, or profile on more memory");
    }
  }
}

OptimizerProfile Profiling::measure_optimizer(const std::string& name, const MakeOptimizer& make) {
  OptimizerProfile profile;
  profile.name = name;
  profile.state_bytes_per_parameter_byte = make()->state_ratio();
  for (int pieces = 1; pieces <= kUpdatePieces; pieces *= 2) {
    const std::vector<UpdatePoint> points = measure_updates(make, pieces, /*devices=*/1);
    profile.parts.insert(profile.parts.end(), points.begin(), points.end());
  }
  const int devices = options_.devices.count;
  const UpdatePoint all = devices > 1 ? measure_updates(make, 1, devices).front() : profile.parts.front();
  profile.parameters = all.parameters;
  profile.update = all.update;
  try {
    profile.new_version = measure_new_version(make);
  } catch (const model::OutOfMemory&) {  // no room for a second version
  }
  return profile;
}

/// All parameters, in as many stretches of layers, on so many devices at once while the others idle; stretches
/// without parameters are left out.
std::vector<UpdatePoint> Profiling::measure_updates(const MakeOptimizer& make, int pieces, int devices) {
  const int layers = static_cast<int>(part_.layers.size());
  std::vector<std::vector<Stretch>> stretches(runners_.size());  // per device
  for (int piece = 0; piece < pieces; ++piece) {
    Stretch stretch{.begin = piece * layers / pieces, .end = (piece + 1) * layers / pieces};
    if (runners_.front()->trained_bytes(stretch) == Bytes(0)) continue;
    for (auto& own : std::span(stretches).first(static_cast<std::size_t>(devices)))
      own.push_back({stretch.begin, stretch.end, make()});
  }
  time_updates(runners_, stretches);
  std::vector<UpdatePoint> points;
  for (const Stretch& stretch : stretches.front())
    points.push_back({runners_.front()->trained_bytes(stretch), summarise(stretch.seconds)});
  return points;
}

/// Each device its part of the model, where there are parts. Nothing where the first one has no parameters.
std::optional<UpdatePoint> Profiling::measure_new_version(const MakeOptimizer& make) {
  const Runners& runners = parts_.empty() ? runners_ : parts_;
  std::vector<std::vector<Stretch>> stretches(runners.size());
  for (std::size_t d = 0; d < runners.size(); ++d)
    stretches[d].push_back({0, runners[d]->layers(), make(), /*new_version=*/true});
  const Stretch& first = stretches.front().front();
  const Bytes parameters = runners.front()->trained_bytes(first);
  if (parameters == Bytes(0)) return std::nullopt;
  time_updates(runners, stretches);
  return UpdatePoint{parameters, summarise(first.seconds)};
}

/// Every device that has stretches, until the times of the first device's first one are precise.
void Profiling::time_updates(const Runners& runners, std::vector<std::vector<Stretch>>& stretches) {
  const StoppingRule rule = rule_of(options_, optimizer_budget() / kUpdateMeasurements);
  const auto visit = [&](int dropped, int steps) {
    const Seconds start = environment_.clock.now();
    on_devices([&](int device, ModelRunner& /*whole*/) {
      const auto d = static_cast<std::size_t>(device);
      if (!stretches[d].empty()) runners[d]->time_updates(/*size=*/0, stretches[d], dropped, steps);
    });
    return (environment_.clock.now() - start) / (dropped + steps);
  };
  const std::vector<double>& seconds = stretches.front().front().seconds;
  Seconds step_time = visit(rule.warm_up_passes, 0);
  for (Seconds spent{}; decide(rule, seconds, spent) == Verdict::more;) {
    const double fitting = kUpdateVisit / std::max(step_time, Seconds(1e-9));
    const int steps = static_cast<int>(std::clamp(fitting, 1.0, 32.0));
    step_time = visit(/*dropped=*/0, steps);
    spent += steps * step_time;
  }
}

}  // namespace pp::profile
