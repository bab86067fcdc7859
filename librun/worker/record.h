// What one worker writes down while it runs. Plain values; the report is made from them.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "libplan/simulate/simulate.h"
#include "libprofile/core/units.h"

namespace pp::run {

/// The median of a stream of times in bounded memory: when full, every second time is dropped and from then on
/// only every second (fourth, ...) one is kept. Deterministic.
class TimeSample {
 public:
  void add(Seconds time);
  std::int64_t count() const { return count_; }
  /// 0 without times.
  Seconds median() const;

 private:
  static constexpr std::size_t kMost = 4096;
  std::vector<Seconds> kept_;
  std::int64_t count_ = 0;
  std::int64_t stride_ = 1;
};

/// Upper median; 0 for none. Sorts its copy.
Seconds median(std::vector<Seconds> times);

/// Times count from the start of the run.
struct WorkerRecord {
  /// Seconds spent in operations, without waiting: per step, and in streams per mini-batch (one entry per
  /// epoch).
  std::vector<Seconds> busy;
  std::map<std::pair<plan::OpKind, StageId>, TimeSample> op_times;
  Bytes peak;                                            ///< during training
  Bytes weights, gradients, optimizer, versions, saved;  ///< the largest of each, between operations
  int peak_in_flight = 0;
  int peak_versions = 1;
  Bytes sent;
  std::vector<plan::OpEvent> ops;  ///< of the last steps, when a trace is wanted
  std::vector<plan::MessageEvent> messages;
};

}  // namespace pp::run
