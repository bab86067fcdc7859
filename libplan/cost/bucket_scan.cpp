#include "libplan/cost/bucket_scan.h"

#include <algorithm>

namespace pp::plan {

double hideable(std::span<const LayerGradient> layers, double all_reduce) {
  double bytes = 0;
  for (const LayerGradient& layer : layers) bytes += static_cast<double>(layer.bytes);
  if (bytes == 0) return 0;
  double time = 0;  // of the backward so far
  double free = 0;  // when the sums so far are done
  std::int64_t bucket = 0;
  for (std::size_t i = layers.size(); i-- > 0;) {
    time += layers[i].backward;
    bucket += layers[i].bytes;
    if (i > 0 && bucket < kBucket.value) continue;
    free = std::max(free, time) + all_reduce * static_cast<double>(bucket) / bytes;
    bucket = 0;
  }
  return std::max(0.0, all_reduce - (free - time));
}

}  // namespace pp::plan
