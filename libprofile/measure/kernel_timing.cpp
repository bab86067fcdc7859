#include "libprofile/measure/kernel_timing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "libprofile/device/compute_device.h"
#include "libprofile/model/kernels/kernel_call.h"

namespace pp::profile {
namespace {

constexpr int kRounds = 5;
constexpr Seconds kSample{5e-4}, kLong{0.02};
constexpr double kLeastGain = 0.03;

/// The operation by the kernel, inside by those that are chosen already.
class Timed {
 public:
  Timed(const model::KernelCall& call, const KernelKey& key, Kernel kernel, std::vector<KernelChoice> chosen)
      : call_(call), kernels_(with(std::move(chosen), {key, kernel, std::nullopt})) {}

  /// The best so far, per call.
  Seconds best() const { return best_; }

  /// The first call makes what later ones find; it counts only where it is long.
  void warm_up(const Clock& clock) {
    const Seconds first = run(1, clock);
    best_ = first >= kLong ? first : run(1, clock);
  }

  void run_sample(const Clock& clock) {
    const auto calls = static_cast<int>(std::clamp(kSample / std::max(best_, Seconds(1e-7)), 1.0, 1000.0));
    best_ = std::min(best_, run(calls, clock));
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
  Seconds best_{std::numeric_limits<double>::infinity()};
};

std::array<Seconds, 2> time_both(const KernelKey& key, const std::vector<KernelChoice>& chosen,
                                 const Clock& clock) {
  const model::KernelCall call = model::make_call(key, make_generator(at::kCPU, 1));
  const auto [first, second] = kernels_of(key.task);
  std::array both{Timed(call, key, first, chosen), Timed(call, key, second, chosen)};
  for (Timed& one : both) one.warm_up(clock);
  for (int round = 0; round < kRounds && std::max(both[0].best(), both[1].best()) < kLong; ++round) {
    for (Timed& one : both) one.run_sample(clock);
  }
  return {both[0].best(), both[1].best()};
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
  const bool first_is_usual = model::usual_kernel(timed.key) == first;
  const auto [usual, other] =
      first_is_usual ? *timed.measured : std::array{(*timed.measured)[1], (*timed.measured)[0]};
  const bool wins = other <= (1 - kLeastGain) * usual;
  return wins == first_is_usual ? second : first;
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
