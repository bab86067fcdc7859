// Message times by hand.
#pragma once

#include "libprofile/core/cluster.h"

namespace pp::run::test {

inline LinkSample sample(std::int64_t bytes, double microseconds) {
  const Seconds time(1e-6 * microseconds);
  return {Bytes(bytes), {time, time, time, 10}};
}

}  // namespace pp::run::test
