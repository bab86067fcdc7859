#include "libprofile/device/reference_kernel.h"

#include <cstdint>

namespace pp::profile {
void run_reference() {
  constexpr int kSteps = 40'000;  // dependent multiplications of about 4 cycles each
  std::uint64_t state = 1;
  for (int i = 0; i < kSteps; ++i) state = state * 6364136223846793005U + 1442695040888963407U;
  volatile std::uint64_t result = state;  // or the loop would be optimised away
  static_cast<void>(result);
}

double time_reference(Timer& timer, const std::function<void()>& arithmetic) {
  timer.mark();
  arithmetic();
  timer.mark();
  return timer.take().front();
}

}  // namespace pp::profile
