#include "librun/links/link_samples.h"

#include <algorithm>

#include "libprofile/core/error.h"

namespace pp::run {

std::vector<Bytes> sizes_of(const LinkSweep& sweep) {
  std::vector<Bytes> sizes;
  for (Bytes size = sweep.smallest; size <= sweep.largest; size = size * 2) sizes.push_back(size);
  if (sizes.size() < 2) {
    throw Error(ErrorKind::usage, "link sizes " + to_text(sweep.smallest) + " to " + to_text(sweep.largest) +
                                      ": give at least a doubling");
  }
  return sizes;
}

LinkSample summarise(Bytes size, std::vector<double> times) {
  std::ranges::sort(times);
  const auto at = [&](double share) {
    return Seconds(times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1) + 0.5)]);
  };
  return {size, {at(0.5), at(0.16), at(0.84), static_cast<std::int64_t>(times.size())}};
}

}  // namespace pp::run
