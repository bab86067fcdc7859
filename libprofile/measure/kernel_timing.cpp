#include "libprofile/measure/kernel_timing.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "libprofile/device/compute_device.h"
#include "libprofile/model/kernels/kernels.h"

namespace pp::profile {
namespace {

constexpr int kRounds = 5;
constexpr Seconds kSample{5e-4};
/// Once so much is spent on an operation, a round decides that is clear, or the second one.
constexpr Seconds kLong{0.05};
constexpr double kClearGain = 0.2, kLeastGain = 0.03;

/// The operation by one kernel, inside by those that are chosen already.
class Timed {
 public:
  Timed(const model::KernelCall& call, const KernelKey& key, Kernel kernel, std::vector<KernelChoice> chosen)
      : call_(call), kernels_(with(std::move(chosen), {key, kernel, std::nullopt})) {}

  /// What later calls find, as memory, is made.
  void warm_up(const Clock& clock) { first_ = run(1, clock); }

  /// Seconds per call.
  Seconds sample(const Clock& clock) {
    const auto calls = static_cast<int>(std::clamp(kSample / std::max(first_, Seconds(1e-7)), 1.0, 1000.0));
    samples_.push_back(run(calls, clock));
    return samples_.back();
  }
  Seconds best() const { return *std::ranges::min_element(samples_); }
  Seconds median() const {
    std::vector<Seconds> sorted = samples_;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }

 private:
  static std::vector<KernelChoice> with(std::vector<KernelChoice> chosen, const KernelChoice& one) {
    chosen.push_back(one);
    return chosen;
  }

  Seconds run(int calls, const Clock& clock) const {
    const model::UseKernels use(&kernels_);
    const Seconds start = clock.now();
    for (int i = 0; i < calls; ++i) call_.run();
    return (clock.now() - start) / calls;
  }

  const model::KernelCall& call_;
  model::Kernels kernels_;
  Seconds first_{};
  std::vector<Seconds> samples_;
};

bool first_is_usual(const KernelKey& key) { return model::usual_kernel(key) == kernels_of(key.task)[0]; }

/// In the order of kernels_of(): the least of the usual one, the median of the other, so that noise changes
/// nothing.
std::array<Seconds, 2> time_both(const KernelKey& key, const std::vector<KernelChoice>& chosen,
                                 const Clock& clock) {
  const model::KernelCall call = model::make_call(key, make_generator(at::kCPU, 1));
  const auto [first, second] = kernels_of(key.task);
  const bool in_order = first_is_usual(key);
  Timed usual(call, key, in_order ? first : second, chosen),
      other(call, key, in_order ? second : first, chosen);
  const Seconds start = clock.now();
  usual.warm_up(clock);
  other.warm_up(clock);
  for (int round = 0; round < kRounds; ++round) {
    const double gain = 1 - other.sample(clock) / usual.sample(clock);
    const bool clear = gain > kClearGain || gain < 0;
    if (clock.now() - start > kLong && (clear || round > 0)) break;
  }
  return in_order ? std::array{usual.best(), other.median()} : std::array{other.median(), usual.best()};
}

/// With the products that convolutions of `keys` are made of.
std::vector<KernelKey> with_inner_products(model::KernelKeys keys) {
  for (const KernelKey& key : model::KernelKeys(keys)) {
    if (is_product(key.task)) continue;
    const model::Kernels as_product(std::array{KernelChoice{key, Kernel::product, std::nullopt}});
    const model::KernelCall call = model::make_call(key, make_generator(at::kCPU, 1));
    const model::UseKernels use(&as_product);
    const model::RecordKernels record(keys);
    call.run();
  }
  std::vector<KernelKey> sorted(keys.begin(), keys.end());
  std::ranges::sort(sorted);
  return sorted;
}

bool contains(const std::vector<KernelChoice>& choices, const KernelKey& key) {
  return std::ranges::count(choices, key, &KernelChoice::key) > 0;
}

}  // namespace

Kernel faster_kernel(const KernelChoice& timed) {
  const auto [first, second] = kernels_of(timed.key.task);
  const bool in_order = first_is_usual(timed.key);
  const Seconds usual = (*timed.measured)[in_order ? 0 : 1], other = (*timed.measured)[in_order ? 1 : 0];
  const bool wins = other <= (1 - kLeastGain) * usual;
  return wins == in_order ? second : first;
}

std::vector<KernelChoice> time_kernels(const model::KernelKeys& keys, std::vector<KernelChoice> known,
                                       const Clock& clock) {
  for (const KernelKey& key : with_inner_products(keys)) {  // products before the convolutions they are part of
    if (contains(known, key)) continue;
    KernelChoice choice{key, {}, time_both(key, known, clock)};
    choice.kernel = faster_kernel(choice);
    known.push_back(choice);
  }
  std::ranges::sort(known, {}, &KernelChoice::key);
  return known;
}

std::vector<KernelChoice> onednn_kernels(const model::KernelKeys& keys, std::vector<KernelChoice> known) {
  for (const KernelKey& key : keys) {
    if (is_product(key.task) && !contains(known, key)) known.push_back({key, Kernel::onednn, std::nullopt});
  }
  std::ranges::sort(known, {}, &KernelChoice::key);
  return known;
}

}  // namespace pp::profile
