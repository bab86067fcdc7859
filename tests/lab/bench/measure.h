// What benchmarks measure: CPU time, which neighbours on the same machine hardly move, and memory.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pp::bench {

inline double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// User and system seconds, RUSAGE_SELF or of all ended children with RUSAGE_CHILDREN.
inline double cpu_seconds(int who = RUSAGE_SELF) {
  rusage usage{};
  getrusage(who, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

/// Of this process, ever.
inline double peak_mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

template <class Call>
double cpu_seconds_of(Call call, int who = RUSAGE_SELF) {
  const double begin = cpu_seconds(who);
  call();
  return cpu_seconds(who) - begin;
}

struct Sample {
  std::vector<double> values;

  double median() const {
    std::vector<double> sorted = values;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
  double least() const { return std::ranges::min(values); }
  double most() const { return std::ranges::max(values); }
};

}  // namespace pp::bench
