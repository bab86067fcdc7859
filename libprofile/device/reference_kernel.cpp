#include "libprofile/device/reference_kernel.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pp::profile {

void run_reference() {
  constexpr int kSteps = 40'000;  // dependent multiplications of about 4 cycles each
  constexpr std::size_t kLine = 64 / sizeof(std::uint64_t),
                        kWords = (std::size_t{1} << 20) / sizeof(std::uint64_t);
  thread_local std::vector<std::uint64_t> memory(kWords);
  std::uint64_t state = 1;
  for (int i = 0; i < kSteps; ++i) state = state * 6364136223846793005U + 1442695040888963407U;
  for (std::size_t word = 0; word < kWords; word += kLine) state += memory[word] += state;
  volatile std::uint64_t result = state;  // or the loops would be optimised away
  static_cast<void>(result);
}

double time_reference(Timer& timer, const std::function<void()>& work) {
  timer.mark();
  work();
  timer.mark();
  return timer.take().front();
}

}  // namespace pp::profile
