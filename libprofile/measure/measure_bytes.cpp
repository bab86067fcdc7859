#include "libprofile/measure/measure_bytes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/measure/kernel_timing.h"
#include "libprofile/measure/profiled_devices.h"
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

}  // namespace pp::profile
