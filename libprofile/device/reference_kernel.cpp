#include "libprofile/device/reference_kernel.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pp::profile {

namespace {

constexpr int kSteps = 30'000;
constexpr std::size_t kChains = 24;  // in pairs, so many that all units for floating point are busy

template <std::size_t... chain>
void advance(std::array<double, kChains>& chains, std::index_sequence<chain...> /*all*/) {
  ((chains[chain] = chains[chain] * 0.999 + 0.001), ...);
}

}  // namespace

void run_reference() {
  constexpr std::size_t kLine = 64 / sizeof(double), kWords = (std::size_t{1} << 20) / sizeof(double);
  thread_local std::vector<double> memory(kWords);
  std::array<double, kChains> chains{};
  for (int i = 0; i < kSteps; ++i) advance(chains, std::make_index_sequence<kChains>{});
  double sum = 0;
  for (const double chain : chains) sum += chain;
  for (std::size_t word = 0; word < kWords; word += kLine) sum += memory[word] += 1;
  volatile double result = sum;  // or the loops would be optimised away
  static_cast<void>(result);
}

double time_reference(Timer& timer, const std::function<void()>& work) {
  timer.mark();
  work();
  timer.mark();
  return timer.take().front();
}

double slowdown_after(Seconds pause, const Clock& clock, const std::function<void()>& work) {
  const auto time_of_work = [&] {
    const Seconds start = clock.now();
    work();
    return clock.now() - start;
  };
  std::array<double, 15> ratios;
  for (double& ratio : ratios) {
    work();
    const Seconds at_once = time_of_work();
    for (const Seconds done = clock.now(); clock.now() - done < pause;) {
    }
    ratio = time_of_work() / at_once;
  }
  std::ranges::sort(ratios);
  return ratios[ratios.size() / 2];
}

double cache_loss(const Clock& clock) {
  constexpr std::size_t kBytes = std::size_t{8} << 20, kLine = 64;
  const std::vector<std::uint8_t> memory(kBytes, 1);
  return slowdown_after(Seconds(5e-3), clock, [&] {
    std::uint64_t sum = 0;
    for (std::size_t byte = 0; byte < kBytes; byte += kLine) sum += memory[byte];
    volatile std::uint64_t result = sum;  // or the loop would be optimised away
    static_cast<void>(result);
  });
}

}  // namespace pp::profile
