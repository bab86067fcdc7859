// Bytes and kernels of each micro-batch size, then samples of times.
#include "libprofile/measure/steps.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/reference_kernel.h"
#include "libprofile/measure/findings.h"
#include "libprofile/measure/kernel_timing.h"
#include "libprofile/model/errors.h"

namespace pp::profile {

namespace {

/// Before the byte passes of size `next`: what it and the sizes after it will take if passes grow as the sizes
/// do, and the timing of all.
Seconds remaining_before(std::size_t next, const std::vector<MeasuredSize>& sizes,
                         const ProfileOptions& options) {
  Seconds total = double{kMeasuredOptimizers.size()} * budget_of_optimizer(options);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Seconds pass_time = sizes[i].pass_time;
    if (i >= next) {
      if (next > 0) {
        const MeasuredSize& known = sizes[next - 1];
        const auto samples = [](const MeasuredSize& s) { return static_cast<double>(s.micro_batch_size); };
        pass_time = known.pass_time * (samples(sizes[i]) / samples(known));
      }
      total += kBytePasses * pass_time;
    }
    total += expected_time(rule_of_passes(options), pass_time, kKindsWithParts);
  }
  return total;
}

/// On all devices at once, each on its cores; the first one's times count. `known` have been chosen before.
std::vector<KernelChoice> choose_kernels(ProfiledDevices& devices, const Subject& subject, std::size_t size,
                                         const std::vector<KernelChoice>& known) {
  const KernelPolicy policy = subject.options.kernels;
  if (policy == KernelPolicy::mkl || devices.is_cuda()) return known;
  std::vector<KernelChoice> choices;
  devices.run([&](int device, ModelRunner& runner) {
    const model::KernelKeys keys = runner.kernel_keys(size);
    const ChargeMemory nobody{MemoryAccount()};
    std::vector<KernelChoice> own = policy == KernelPolicy::onednn
                                        ? onednn_kernels(keys, known)
                                        : time_kernels(keys, known, subject.environment.clock);
    if (device == 0) choices = std::move(own);
  });
  devices.use(choices);
  return choices;
}

/// Whether a size twice as large could not be sampled within the budget.
bool is_last(const MeasuredSize& size, const Subject& subject) {
  const StoppingRule rule = rule_of_passes(subject.options);
  const bool in_parts = are_parts_measured(subject.model, subject.part, subject.options.devices.count);
  return expected_time(rule, 2 * size.pass_time, in_parts ? kKindsWithParts : kKindsOfWhole) > rule.budget;
}

/// Where the sizes were asked for, all of them stay as points; of automatic ones the first that does not fit.
void give_up_from(std::size_t size, std::vector<MeasuredSize>& sizes, const Subject& subject, Bytes memory) {
  for (std::size_t above = size; above < sizes.size(); ++above) sizes[above].out_of_memory = true;
  if (subject.options.size_choice == SizeChoice::automatic) {
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(size) + 1, sizes.end());
    return;
  }
  subject.observer.warning("micro-batch size " + std::to_string(sizes[size].micro_batch_size) +
                           " and above do not fit into the device's " + to_text(memory) +
                           ": recorded as out of memory; leave these sizes out");
}

}  // namespace

std::vector<std::int64_t> sizes_to_measure(const ProfileOptions& options) {
  if (options.size_choice == SizeChoice::listed) return options.micro_batch_sizes;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= kLargestAutomaticSize; size *= 2) sizes.push_back(size);
  return sizes;
}

MeasuredBytes measure_bytes(ProfiledDevices& devices, const Subject& subject, std::vector<KernelChoice> known) {
  MeasuredBytes measured{.kernels = std::move(known)};
  std::vector<MeasuredSize>& sizes = measured.sizes;
  for (const std::int64_t n : sizes_to_measure(subject.options))
    sizes.push_back({.micro_batch_size = n, .bytes = {}});
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    MeasuredSize& size = sizes[i];
    subject.observer.progress("counting bytes", static_cast<double>(i) / static_cast<double>(sizes.size()),
                              remaining_before(i, sizes, subject.options));
    Seconds start{};
    try {
      with_context("micro-batch size " + std::to_string(size.micro_batch_size), [&] {
        measured.kernels = choose_kernels(devices, subject, i, measured.kernels);
        devices.run([&](int, ModelRunner& runner) { runner.warm_up(i); });
        start = subject.environment.clock.now();
        devices.run([&](int device, ModelRunner& runner) {
          PassBytes own = runner.measure_bytes(i);
          if (device == 0) size.bytes = std::move(own);
        });
      });
    } catch (const model::OutOfMemory&) {
      if (i == 0) throw;
      give_up_from(i, sizes, subject, devices.account().limit());
      return measured;
    }
    size.pass_time = (subject.environment.clock.now() - start) / kBytePasses;
    if (subject.options.size_choice == SizeChoice::automatic && is_last(size, subject))
      sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(i) + 1, sizes.end());
  }
  return measured;
}

namespace {

using Phase = model::LayerObserver::Phase;

double at(const PassTimes& pass, Phase phase, std::size_t position) {
  return pass[static_cast<std::size_t>(phase)][position];
}

}  // namespace

LayerSamples::LayerSamples(int positions) : positions_(static_cast<std::size_t>(positions)) {}

void LayerSamples::Samples::add(const PassTimes& pass, std::size_t position, Laps laps) {
  forward.push_back(at(pass, Phase::forward, position));
  if (laps == Laps::split) {
    input_gradient.push_back(at(pass, Phase::input_gradient, position));
    weight_gradient.push_back(at(pass, Phase::weight_gradient, position));
  } else {
    backward.push_back(at(pass, Phase::backward, position));
  }
}

LayerSamples::Positions& LayerSamples::under(const Condition& condition) {
  const auto found = std::ranges::find(samples_, condition, &std::pair<Condition, Positions>::first);
  if (found != samples_.end()) return found->second;
  return samples_.emplace_back(condition, Positions(positions_)).second;
}

void LayerSamples::add(const Condition& condition, const PassTimes& pass, Laps laps) {
  Positions& positions = under(condition);
  for (std::size_t p = 0; p < positions.size(); ++p) positions[p].add(pass, p, laps);
}

void LayerSamples::add(const VisitTimes& times, const PassKind& kind) {
  for (const PassTimes& pass : times.layers) add(kind.condition, pass, kind.laps);
  if (times.first && kind.with_first) {
    Condition first = kind.condition;
    first.after_update = true;
    add(first, *times.first, kind.laps);
  }
  whole_forward_.insert(whole_forward_.end(), times.forward.begin(), times.forward.end());
  whole_backward_.insert(whole_backward_.end(), times.backward.begin(), times.backward.end());
}

std::optional<LayerTimes> LayerSamples::times(const Condition& condition, int position) const {
  const auto found = std::ranges::find(samples_, condition, &std::pair<Condition, Positions>::first);
  if (found == samples_.end()) return std::nullopt;
  const Samples& of = found->second[static_cast<std::size_t>(position)];
  if (of.backward.empty() || of.input_gradient.empty()) return std::nullopt;
  return LayerTimes{summarise(of.forward), summarise(of.backward), summarise(of.input_gradient),
                    summarise(of.weight_gradient)};
}

void LayerSamples::fill_times(int position, LayerPoint& point) const {
  const LayerTimes usual = times({}, position).value_or(LayerTimes{});
  point.forward = usual.forward;
  point.backward = usual.backward;
  point.input_gradient = usual.input_gradient;
  point.weight_gradient = usual.weight_gradient;
  point.first = times({.after_update = true}, position);
  point.alone = times({.busy = false}, position);
  point.in_part = times({.cut = true}, position);
}

void LayerSamples::fill_times(WholeModelPoint& point) const {
  point.forward = summarise(whole_forward_);
  point.backward = summarise(whole_backward_);
}

namespace {

/// As many micro-batches as there are devices, or as many as fit beside one another; at least the one that was
/// run.
int micro_batches_in_flight(const PassBytes& bytes, Bytes limit, int devices) {
  if (bytes.kept.value <= 0) return devices;
  const std::int64_t fitting = 1 + (limit - bytes.peak).value / bytes.kept.value;
  return static_cast<int>(std::clamp<std::int64_t>(fitting, 1, devices));
}

std::vector<int> choose_in_flight(const ProfiledDevices& devices, const std::vector<MeasuredSize>& sizes) {
  std::vector<int> in_flight(sizes.size(), 1);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].out_of_memory) continue;
    const Bytes free = devices.account().limit() - devices.whole().front()->batches().idle_bytes(i);
    in_flight[i] = micro_batches_in_flight(sizes[i].bytes, free, devices.count());
  }
  return in_flight;
}

/// The passes of the whole model beside all that lives.
bool passes_fit(const ProfiledDevices& devices, const std::vector<MeasuredSize>& sizes,
                const std::vector<int>& in_flight) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Bytes others(sizes[i].bytes.kept.value * (in_flight[i] - 1));
    if (!sizes[i].out_of_memory && !devices.have_room(sizes[i].bytes.peak + others)) return false;
  }
  return true;
}

/// Parts of the model that take about equally long at the largest size that fits.
std::vector<ModelPart> equal_parts(ProfiledDevices& devices, const Subject& subject,
                                   const std::vector<MeasuredSize>& sizes) {
  constexpr int kPasses = 3;
  Visit visit{.dropped = 1, .passes = kPasses};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].out_of_memory) visit.size = i;
  }
  VisitTimes first;
  devices.run([&](int device, ModelRunner& whole) {
    VisitTimes times = whole.run_visit(visit, 1);
    if (device == 0) first = std::move(times);
  });
  return model_parts(subject.model, devices.count(), layer_costs(first, subject.model.layer_count()));
}

void add_parts(ProfiledDevices& devices, const Subject& subject, const std::vector<MeasuredSize>& sizes,
               const std::vector<int>& in_flight) {
  if (!are_parts_measured(subject.model, subject.part, devices.count())) return;
  const std::vector<ModelPart> parts = equal_parts(devices, subject, sizes);
  try {
    devices.add_parts(parts, [&](ModelRunner& part) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i].out_of_memory) continue;
        part.batches().make(i);
        part.batches().vary_boundaries(i);
      }
    });
    if (passes_fit(devices, sizes, in_flight)) return;
    devices.drop_parts();
  } catch (const model::OutOfMemory&) {  // it has dropped them
  }
  subject.observer.warning(
      "memory does not hold the model beside a part of it: times are those of devices that hold the whole "
      "model each, for pipelines too; profile smaller sizes, or fewer devices at once");
}

/// On all devices at once, or on the first one alone. Times of the whole model are the first device's. Adds the
/// first device's time of the reference work.
VisitTimes run_visit(ProfiledDevices& devices, const Visit& visit, int in_flight,
                     std::vector<double>& reference) {
  const Condition& condition = visit.kind.condition;
  const int of_whole = devices.parts().empty() ? in_flight : 1;
  std::vector<VisitTimes> times(static_cast<std::size_t>(devices.count()));
  devices.run([&](int device, ModelRunner& whole) {
    if (device > 0 && !condition.busy) return;
    const auto d = static_cast<std::size_t>(device);
    const double reference_time =
        time_reference(*devices.probes(device).timer, devices.probes(device).reference);
    if (device == 0) reference.push_back(reference_time);
    times[d] = condition.cut
                   ? devices.parts()[d]->run_visit(visit, std::min(in_flight, devices.count() - device))
                   : whole.run_visit(visit, of_whole);
  });
  return condition.cut ? joined(times) : std::move(times.front());
}

/// What `rounds` and the reference work say about the machine.
Context interruptions(const Rounds& rounds, std::size_t sizes, std::span<const double> reference,
                      Observer& observer) {
  Context findings;
  int outliers = 0, passes = 0;
  for (std::size_t i = 0; i < sizes; ++i) {
    const std::span<const double> samples = rounds.samples(i, kWhole);
    outliers += count_outliers(samples);
    passes += static_cast<int>(samples.size());
  }
  findings["outliers"] = std::to_string(outliers) + " of " + std::to_string(passes);
  if (const auto change = reference_change(reference))
    findings["reference_kernel_change"] = std::to_string(std::lround(100 * *change)) + " %";
  if (const auto finding = outlier_finding(outliers, passes)) observer.warning(*finding);
  if (const auto finding = reference_finding(reference)) observer.warning(*finding);
  return findings;
}

}  // namespace

MeasuredTimes measure_times(ProfiledDevices& devices, const Subject& subject, const MeasuredBytes& bytes) {
  MeasuredTimes measured{.samples = {}, .in_flight = choose_in_flight(devices, bytes.sizes), .findings = {}};
  measured.samples.assign(bytes.sizes.size(), LayerSamples(subject.part.positions()));
  add_parts(devices, subject, bytes.sizes, measured.in_flight);
  std::vector<std::optional<Seconds>> pass_times;
  for (const MeasuredSize& size : bytes.sizes)
    pass_times.push_back(size.out_of_memory ? std::nullopt : std::optional(size.pass_time));

  const ProfileOptions& options = subject.options;
  const Clock& clock = subject.environment.clock;
  std::vector<double> reference;
  Rounds rounds(rule_of_passes(options), pass_times, devices.parts().empty() ? kKindsOfWhole : kKindsWithParts);
  while (const std::optional<Visit> visit = rounds.next()) {
    const Seconds start = clock.now();
    const VisitTimes times = run_visit(devices, *visit, measured.in_flight[visit->size], reference);
    const Seconds duration = clock.now() - start;
    measured.samples[visit->size].add(times, visit->kind);
    rounds.report(*visit, pass_seconds(times), duration);
    subject.observer.progress(
        "timing layers", rounds.done(),
        rounds.remaining() + double{kMeasuredOptimizers.size()} * budget_of_optimizer(options));
  }
  measured.findings = interruptions(rounds, bytes.sizes.size(), reference, subject.observer);
  return measured;
}

}  // namespace pp::profile
