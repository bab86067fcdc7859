// Where a worker stands in its part of a training: which step an operation works for, on which rows of the
// data. Programs and streams are walked alike; nothing is written out in advance.
// Free of Torch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "libplan/schedule/program.h"
#include "librun/data/order.h"

namespace pp::run {

/// Steps that are walked through without draining, all of one epoch.
struct StepRange {
  Step first = 0;
  Step end = 0;
  Step epoch_first = 0;  ///< with which the epoch began
};

/// An operation and what it works on.
struct Operation {
  plan::Op op;            ///< its micro-batch as `micro_batch` below, in streams as `local`
  std::size_t place = 0;  ///< in the stream (plan::StreamWalk)
  Step step = 0;
  std::int64_t local = 0;      ///< micro-batch, from the beginning of the range
  int micro_batch = 0;         ///< within the step, over all its mini-batches
  std::int64_t first_row = 0;  ///< of the epoch's order
  int rows = 0;
  bool run_again = false;  ///< of F: an R of the same micro-batch follows
  bool alone = false;      ///< of F: no backward of the same micro-batch follows
  bool ends_step = false;  ///< of B or W: of the last mini-batch of its step
};

/// The first micro-batch of each stage that a backward follows; forwards before it have none (PARTIME).
std::map<StageId, int> first_backwards(const plan::Stream& stream);

class Cursor {
 public:
  /// `stream`: of the worker, a mini-batch's program as steps_of() makes it; must outlive the cursor, as
  /// `epoch` must. `of_step`: micro-batches are named within their step. Where mini-batches are accumulated,
  /// the operations that belong to an update (AR, ARg, U) are those of the last one.
  Cursor(const plan::Stream& stream, bool of_step, const EpochShape& epoch, StepRange range);

  /// Nothing at the end of the range.
  std::optional<Operation> next();
  /// The range ends earlier; nothing of the steps from `end` on has been given out.
  void end_at(Step end);

 private:
  bool runs_again(StageId stage, std::int64_t local) const;
  void locate(Operation& operation) const;
  /// Micro-batches from the beginning of the range to that of a step.
  std::int64_t local_begin(Step step) const;
  /// Of the epoch; the one that a micro-batch of the range, counted from its beginning, belongs to.
  std::int64_t mini_batch_of(std::int64_t local) const;
  bool ends_step(std::int64_t mini_batch) const;

  const plan::Stream& stream_;
  bool of_step_;
  const EpochShape& epoch_;
  StepRange range_;
  plan::StreamWalk walk_;
  std::map<StageId, int> first_backward_;
  /// What the body runs again, stage and micro-batch modulo period, and the least such micro-batch.
  std::map<std::pair<StageId, int>, int> again_;
  std::map<StageId, Step> due_;  ///< step of the stage's last backward
};

}  // namespace pp::run
