// How often to write checkpoints: often enough that a failure costs little, seldom enough that they do.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "libprofile/core/units.h"

namespace pp::run {

/// Seconds of training from the end of one checkpoint to the next that lose the least time, where each takes
/// `cost` from the training and failures come at random, `between_failures` apart in the mean. Both above 0.
/// J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps (FGCS 22, 2006),
/// eq. 37, which refines J. W. Young (CACM 17, 1974), sqrt(2 cost between_failures).
Seconds best_interval(Seconds cost, Seconds between_failures);

/// What a checkpoint takes from the training, from the times of its steps: by how much those that ran while it
/// was copied and written were longer than the others are.
class CheckpointCost {
 public:
  /// Steps that tell how long others take.
  static constexpr std::size_t kUndisturbed = 8;

  /// The next step, and whether a checkpoint was being made meanwhile.
  void add(Seconds step, bool meanwhile);
  /// Whether enough is known of steps without one.
  bool ready() const { return undisturbed_.size() >= kUndisturbed; }
  /// Of the last checkpoints the median, at least kLeast; nothing before the first one is whole.
  std::optional<Seconds> value() const;
  /// No clock of steps tells less.
  static constexpr Seconds kLeast{1e-3};

 private:
  static constexpr std::size_t kKept = 32;  // steps, and checkpoints

  Seconds undisturbed() const;

  std::vector<Seconds> undisturbed_;  // the last ones
  std::vector<Seconds> disturbed_;    // of the checkpoint that is being made
  std::vector<Seconds> costs_;        // of the last ones
};

}  // namespace pp::run
