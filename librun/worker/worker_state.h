// What the instructions of one worker work with, and what those of an operation hand to each other.
#pragma once

#include <ATen/core/Generator.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libprofile/device/memory_meter.h"
#include "librun/report/record.h"
#include "librun/stage/stage.h"
#include "librun/wiring/cursor.h"
#include "librun/worker/data_feed.h"
#include "librun/worker/job.h"
#include "librun/worker/operation_log.h"

namespace pp::run {

/// Belongs to its worker's thread, which makes it; what is left afterwards may be read once that has ended.
struct WorkerState {
  using Time = Coordinator::Clock::time_point;

  WorkerState(Job& the_job, WorkerId worker);

  bool trains() const { return direction == Direction::activation; }
  /// Whether the worker is the stage's first one.
  bool is_first(StageId stage) const { return job.plan.stages[index(stage)].workers.front() == id; }
  /// Whose operation a message of this one comes from or goes to.
  WorkerId owner(Direction way, StageId stage, const Operation& operation) const;
  /// The number of the operation's messages in their channels (Channel::per_step).
  std::int64_t number_of(const Operation& operation) const;
  /// Since the stages began their streams.
  Step step_of(const Operation& operation) const { return operation.step - range.first; }
  /// The learning rate of the operation's update.
  double rate(const Operation& operation) const;
  LossWeight loss_weight(const Operation& operation) {
    return loss_weights.of(operation, range.epoch_first, *feed);
  }
  model::RandomKey key(const Operation& operation) const {
    return {job.options.seed, operation.step, operation.micro_batch};
  }
  /// Now, when the device has done all that this worker has asked of it.
  Time await_finish() const;
  /// Throws OutOfMemory for a peak above the limit.
  void check_memory(Bytes peak) const;
  /// What the operation that the log has under way took at most, which is checked; what is held behind it.
  void note_peak();
  void note_bytes();

  Job& job;
  const WorkerId id;
  const at::Device device;
  at::Generator generator;
  profile::MemoryAccount memory;
  std::map<StageId, Stage> stages;
  WorkerRecord record;  ///< in training the times are written by the log
  LossWeights loss_weights;
  Step trained;  ///< updates that the weights have had
  // While the thread serves.
  DataFeed* feed = nullptr;
  OperationLog* log = nullptr;
  // What the command says.
  Direction direction = Direction::activation;  ///< of what forwards send; evaluation: no backward follows
  const Owners* owners = nullptr;
  StepRange range;
  int epoch = 0;
};

/// An operation under way, one after the other. It is busy from begin() to end(), which only the first call of
/// each does.
class Turn {
 public:
  using Time = WorkerState::Time;

  explicit Turn(WorkerState& state) : state_(state) {}

  void start(const Operation& next, const plan::OpParts& parts);
  /// Ends it, and lets go what nobody has taken.
  void finish();

  void begin();
  void end();
  /// The same of work that was waited for.
  void end(Time begin, Time end);
  /// The same of that much work, until the device is done: waiting for others is not busy.
  void end_after(Seconds elapsed);
  bool begun() const { return begun_; }
  Time begun_at() const { return begun_at_; }
  Time ended_at() const { return ended_at_; }

  Operation operation;
  model::Tensors inputs;                     ///< of the stage; undefined where the data provide them
  std::vector<model::Tensors> gradients;     ///< per output of the stage, in descending consumer order
  model::Tensors outgoing;                   ///< by tensor of the ports that send it
  model::Pass pass;                          ///< of a forward alone
  model::LayerObserver* observer = nullptr;  ///< of a backward

 private:
  WorkerState& state_;
  plan::OpParts parts_;
  bool begun_ = false, ended_ = false;
  Time begun_at_, ended_at_;
};

/// An instruction at work, with what it has of its own from one step to the next.
class Action {
 public:
  virtual ~Action() = default;
  /// The operation is the next one.
  virtual void prepare(const Operation&) {}
  virtual void run(Turn& turn) = 0;
};

}  // namespace pp::run
