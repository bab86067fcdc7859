// How links are sampled: which message sizes, how often, and what is recorded of the times.
#pragma once

#include <vector>

#include "libprofile/core/cluster.h"
#include "libprofile/core/units.h"

namespace pp::run {

struct LinkSweep {
  Bytes smallest{1 << 10};
  Bytes largest{8 << 20};
  /// Counted messages per size and direction; those of the warm-up come before them.
  int repetitions = 60;
  int warm_up = 10;
};

/// From the smallest on, each twice the one before. Throws pp::Error (usage) unless there are two.
std::vector<Bytes> sizes_of(const LinkSweep& sweep);

/// Median, 16th and 84th percentile of at least one time, in seconds.
LinkSample summarise(Bytes size, std::vector<double> times);

}  // namespace pp::run
