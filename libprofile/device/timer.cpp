#include "libprofile/device/timer.h"

#include <cstddef>

namespace pp::profile {

std::vector<double> ClockTimer::take() {
  std::vector<double> laps;
  for (std::size_t i = 1; i < marks_.size(); ++i) laps.push_back((marks_[i] - marks_[i - 1]).count());
  marks_.clear();
  return laps;
}

}  // namespace pp::profile
