// What one worker writes down while it runs, and figures of all steps in bounded memory, for curves over a
// whole run. Plain values; the report is made from them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libplan/schedule/instructions.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/units.h"
#include "librun/server/interleaving.h"
#include "librun/stage/pass_kind.h"
#include "librun/swap/residency.h"

namespace pp::run {

/// The median of a stream of times in bounded memory: when full, every second time is dropped and from then on
/// only every second (fourth, ...) one is kept. Deterministic.
class TimeSample {
 public:
  void add(Seconds time);
  std::int64_t count() const { return count_; }
  /// 0 without times.
  Seconds median() const;
  /// The time that a share of the others do not exceed.
  Seconds quantile(double share) const;
  /// Which share of them exceeds a limit; 0 without times.
  double share_above(Seconds limit) const;

  /// field(value) for all that it is made of.
  template <class Field>
  void each(Field&& field) {
    field(kept_);
    field(count_);
    field(stride_);
  }

 private:
  static constexpr std::size_t kMost = 4096;
  std::vector<Seconds> kept_;
  std::int64_t count_ = 0;
  std::int64_t stride_ = 1;
};

/// Adds to a list that keeps the last ones alone: at most `most`, and at least three quarters of it once there
/// were so many. So a run of any length has bounded memory; its report is of what is kept.
template <class T>
void keep_last(std::vector<T>& list, T value, std::size_t most = std::size_t{1} << 20) {
  if (list.size() >= most) list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(most / 4));
  list.push_back(std::move(value));
}

/// Upper median; 0 for none. Sorts its copy.
Seconds median(std::vector<Seconds> times);

/// What a worker has done since its last update, handed in with the next one.
struct StepFigures {
  Seconds busy{};
  Bytes peak;                                          ///< the largest sum of its tensors
  std::optional<double> gradient_norm = std::nullopt;  ///< of all parameters, where it is limited
  Seconds begin = Seconds::max();                      ///< of its first operation; from the start of the run
  std::string not_finite = {};                         ///< what it was; empty: everything, the updates are made
  void join(const StepFigures& later);
};

/// An operation of the last steps and what its worker held.
struct OpRecord {
  plan::OpEvent event;
  std::int64_t step = 0;
  Bytes peak;  ///< from the end of the operation before, what it receives included
  Bytes held;  ///< after it
};

struct MessageRecord {
  plan::MessageEvent event;
  std::int64_t step = 0;
};

/// Times count from the start of the run.
struct WorkerRecord {
  /// Seconds spent in operations, without waiting: per step, and in streams per mini-batch (one entry per
  /// epoch).
  std::vector<Seconds> busy;
  std::map<std::pair<plan::OpKind, StageId>, TimeSample> op_times;
  /// Per step, as `busy`, but waiting included: those of a worker add up to the step.
  std::map<std::pair<plan::InstructionKind, StageId>, TimeSample> instruction_times;
  Bytes peak;                                            ///< during training
  Bytes weights, gradients, optimizer, versions, saved;  ///< the largest of each, between operations
  int peak_in_flight = 0;
  int peak_versions = 1;
  Bytes sent;
  SwapRecord swaps;
  GraphCount graphs;
  ServerFigures server;       ///< of the first replica around one, whose rank has it
  std::vector<OpRecord> ops;  ///< of the last steps
  std::vector<MessageRecord> messages;
};

/// Sample i stands for the steps from i * stride on, the last one for as many as there are.
struct StepHistory {
  std::int64_t stride = 1;
  std::int64_t steps = 0;
  std::vector<Seconds> time;             ///< mean of the steps
  std::vector<std::vector<Bytes>> peak;  ///< per worker: the largest of the steps
  bool operator==(const StepHistory&) const = default;

  /// When there are kMost samples, neighbours are joined two by two.
  void add(Seconds step, std::span<const StepFigures> workers);
  static constexpr std::size_t kMost = 512;

 private:
  void join_neighbours();
};

}  // namespace pp::run
