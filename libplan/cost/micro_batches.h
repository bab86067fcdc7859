// The micro-batches of a step or an update, and how the smaller ones compare with the largest.
#pragma once

#include <algorithm>

namespace pp::plan {

/// A mini-batch that its micro-batches do not divide has some of one sample more, which come first. Replicas
/// take turns, so the first replica of a stage has most.
struct MicroBatches {
  int count = 1;
  int full = 1;      ///< of the largest size
  double time = 1;   ///< of one of the others, relative to those
  double bytes = 1;  ///< the same; at most 1

  MicroBatches(int all = 1) : count(all), full(all) {}  // all equal
  bool operator==(const MicroBatches&) const = default;

  bool equal() const { return full == count; }
  /// The least that one takes, relative to the largest; 1 where some take nothing.
  double least_time() const { return equal() || time <= 0 ? 1 : std::min(1.0, time); }
  double most_time() const { return equal() ? 1 : std::max(1.0, time); }
  /// Of all, and of the first of `replicas`, in times or bytes of the largest.
  double total(double MicroBatches::*each) const { return full + (count - full) * this->*each; }
  double turns(int replicas, double MicroBatches::*each) const {
    const int all = (count + replicas - 1) / replicas;
    const int large = (full + replicas - 1) / replicas;
    return large + (all - large) * this->*each;
  }
};

}  // namespace pp::plan
