// What micro-batches of a training weigh in the loss of their step, where the loss is a mean over labels: known
// from the data before any backward, so that a plan's micro-batches, replicas and ranks add up to the mean over
// the whole step.
#pragma once

#include <map>
#include <vector>

#include "librun/worker/data_feed.h"
#include "librun/worker/job.h"

namespace pp::run {

/// In samples, or what counts for them (model::LabelCount).
struct LossWeight {
  double own = 0;  ///< of the micro-batch
  double all = 0;  ///< of its step
  /// NaN where nothing of the step counts: the mean over no label, as in PyTorch.
  double share() const { return own / all; }
  /// The micro-batch's own loss is a mean over nothing and counts for nothing.
  bool empty() const { return own == 0 && all != 0; }
};

/// Of one worker, on its thread.
class LossWeights {
 public:
  /// `job` must outlive it.
  explicit LossWeights(const Job& job) : job_(job) {}

  /// Of a operation that has a micro-batch; `epoch_first`: the step with which its epoch began. Where labels
  /// are not counted the numbers of samples, else the labels of the whole step are read once.
  LossWeight of(const Operation& operation, Step epoch_first, const DataFeed& feed);
  /// What all of a step's micro-batches weigh.
  double of_step(Step step, Step epoch_first, const DataFeed& feed);

 private:
  const std::vector<double>& counted(Step step, Step epoch_first, const DataFeed& feed);

  const Job& job_;
  std::map<Step, std::vector<double>> counted_;  ///< per micro-batch, of the last steps
};

}  // namespace pp::run
