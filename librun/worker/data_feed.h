// The rows of the data that a worker's operations read (cut when they are needed, or, where that takes more
// than copying memory, some operations ahead by a thread), and what micro-batches weigh in the loss of their
// step where it is a mean over labels: known from the data before any backward, so that a plan's
// micro-batches, replicas and ranks add up to the mean over the whole step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "libprofile/device/memory_meter.h"
#include "libprofile/model/ops.h"
#include "librun/threads/read_ahead.h"
#include "librun/wiring/cursor.h"
#include "librun/worker/job.h"

namespace pp::run {

/// Made and destroyed on its worker's thread, so that a read that does not return is that worker's.
class DataFeed {
 public:
  /// `job` must outlive it.
  DataFeed(Job& job, WorkerId worker, at::Device device);

  /// What follows are the operations of `cursor`, on `data` in the order of this epoch. `order()` gives it; it
  /// is called once an epoch, and only when the worker reads data at all.
  void begin(const Dataset& data, int epoch, const std::function<std::vector<std::int64_t>()>& order,
             Cursor cursor);
  /// Blocks while the rows of `operation` are being read ahead.
  void await(const Operation& operation);
  /// Sets those of the stage's inputs that the data provide: on the device, and charged to `memory`, which is
  /// this thread's. Operations come in the order of the cursor. Throws what reading threw.
  void fill(const Operation& operation, model::Tensors& inputs, const profile::MemoryAccount& memory);
  /// Rows of this epoch's order, on the CPU; of a worker that reads the data or counts labels. `pinned` as
  /// Dataset::rows() has it.
  at::Tensor rows(const TensorSource& source, std::int64_t first, int count, bool pinned = false) const;

 private:
  bool reads(StageId stage) const;
  bool reads(const Operation& operation) const;
  /// On the device, complete; what other stages send is left alone.
  void cut(const Operation& operation, model::Tensors& inputs) const;

  Job& job_;
  WorkerId worker_;
  at::Device device_;
  bool reads_data_;
  const Dataset* data_ = nullptr;
  int epoch_ = -1;
  std::vector<std::int64_t> order_;                      ///< of `data_` in that epoch
  bool ahead_ = false;                                   ///< what began last is read ahead
  std::optional<ReadAhead<model::Tensors>> read_ahead_;  ///< once it was needed
};

/// In samples, or what counts for them where the loss is one mean over labels (model::LabelCount).
struct LossWeight {
  double own = 0;  ///< of the micro-batch
  double all = 0;  ///< of its step
  /// Where each mean over labels has a weight of its own, what it counts in this micro-batch over what the
  /// samples count (PassContext); else empty.
  std::vector<double> label_shares = {};
  /// NaN where nothing of the step counts: the mean over no label, as in PyTorch.
  double share() const { return own / all; }
  /// The micro-batch's own loss is a mean over nothing and counts for nothing.
  bool empty() const { return own == 0 && all != 0; }
};

/// The weights in one worker's losses, used on its thread.
class LossWeights {
 public:
  /// `job` must outlive it.
  explicit LossWeights(const Job& job) : job_(job) {}

  /// The weight of an operation's micro-batch; `epoch_first`: the step with which its epoch began. Where labels
  /// are not counted the numbers of samples, else the labels of the whole step are read once.
  LossWeight of(const Operation& operation, Step epoch_first, const DataFeed& feed);
  /// The same for an evaluation, whose micro-batches make one mean over all test samples.
  LossWeight of_evaluation(const Operation& operation, const DataFeed& feed);
  /// What all of a step's micro-batches weigh.
  double of_step(Step step, Step epoch_first, const DataFeed& feed);

 private:
  using Counts = std::vector<double>;  ///< of each mean over labels
  const std::vector<Counts>& counted(Step step, Step epoch_first, const DataFeed& feed);
  Counts count(std::int64_t first, int rows, const DataFeed& feed) const;
  /// `own` in `rows` samples, `all` in `samples`.
  std::vector<double> label_shares(const Counts& own, double rows, const Counts& all, double samples) const;

  const Job& job_;
  std::map<Step, std::vector<Counts>> counted_;  ///< per micro-batch, of the last steps
  Counts test_;                                  ///< in the test samples; empty: not counted yet
};

}  // namespace pp::run
