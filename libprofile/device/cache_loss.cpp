#include "libprofile/device/cache_loss.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pp::profile {

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
