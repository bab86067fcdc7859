// The two-way traffic between the driver and its workers: commands say what to do and let steps begin, the
// ledger brings back losses, times and evaluation sums. Free of Torch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "librun/transport/coordinator.h"
#include "librun/worker/cursor.h"
#include "librun/worker/record.h"

namespace pp::run {

/// What all workers do next, the same for everybody and in the same order.
struct Command {
  enum class Kind { train, evaluate, snapshot, stop };
  Kind kind = Kind::stop;
  Stretch stretch = {};  ///< train: its steps; evaluate: from 0, the micro-batches of the test set
  int epoch = 0;
  Step step = 0;      ///< snapshot: updates so far
  bool last = false;  ///< snapshot: no training follows
};

/// The driver's list of commands, given in advance and read by every worker at its own pace. Steps of training
/// are granted a little ahead, so that they follow each other without a barrier, across stretches too. Training
/// can be cut short: then every worker leaves it after the same step.
class Commands {
 public:
  /// Training begins and ends in whole rounds of `round` steps.
  explicit Commands(Coordinator& coordinator, Step round = 1);

  /// The driver's side. Appends what is to be done; stretches follow each other.
  void train(int epoch, Stretch stretch);
  void evaluate(int epoch, Step count);
  /// Every stage hands in a copy of its state.
  void snapshot(Step step, bool last);
  void stop();
  /// Steps below `end` may begin.
  void grant(Step end);
  enum class Cut { training, evaluation_too };
  /// Takes back all training that no worker has begun, but for what completes a round, and what was to follow
  /// it; with `evaluation_too` also what is left of an evaluation. Returns where training ends now.
  Step cut(Cut what);

  /// The worker's side. Blocks until there is a command after the one it had.
  Command next(WorkerId worker);
  /// Blocks until `step` of the worker's stretch may begin (true) or is cut off (false).
  bool admit(WorkerId worker, Step step);
  /// Where the worker's stretch ends as things stand.
  Step end_of_stretch(WorkerId worker);

 private:
  struct Entry {
    Command command;
    Step begun = 0;  ///< steps that some worker was admitted to
    bool cancelled = false;
  };
  void append(Command command);

  Monitor monitor_;
  Step round_;
  Step granted_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::size_t> position_;  ///< per worker: entries it has begun
};

struct StepResult {
  std::vector<double> losses;          ///< mean loss of each micro-batch, in micro-batch order
  Coordinator::Clock::time_point end;  ///< of the last update
  std::vector<StepFigures> workers;    ///< what each handed in with its updates, joined
};

/// Sums over a micro-batch of the test set.
struct EvaluationPart {
  double loss_sum = 0;  ///< mean loss * samples
  std::int64_t samples = 0;
  std::int64_t correct = 0;
  std::int64_t predictions = 0;  ///< of cross_entropy: samples, or positions of sequences; 0: no accuracy
};

/// What makes a step or an evaluation complete.
struct LedgerShape {
  int micro_batches = 1;  ///< losses of a step
  int updates = 1;        ///< of a step, over all stages and replicas
  int evaluations = 0;    ///< micro-batches of an evaluation
};

/// Wakes the driver only for what is complete.
class Ledger {
 public:
  Ledger(Coordinator& coordinator, LedgerShape shape)
      : monitor_(coordinator), shape_(shape), workers_(static_cast<std::size_t>(coordinator.workers())) {}

  void loss(Step step, int micro_batch, double value);
  /// A stage of a worker has been updated.
  void updated(Step step, WorkerId worker, Coordinator::Clock::time_point end, const StepFigures& figures);
  void evaluation(int epoch, int micro_batch, const EvaluationPart& part);

  /// The driver's side: blocks until all of it is there, and takes it; nothing when `give_up` ended the wait
  /// (Monitor::wait_driver).
  std::optional<StepResult> await_step(Step step, const std::function<bool()>& give_up);
  std::optional<EvaluationPart> await_evaluation(int epoch, const std::function<bool()>& give_up);

 private:
  struct Entry {
    std::map<int, double> losses;
    int updates = 0;
    Coordinator::Clock::time_point end;
    std::vector<StepFigures> workers;
  };

  bool complete(const Entry& entry) const;

  Monitor monitor_;
  LedgerShape shape_;
  std::size_t workers_;
  std::map<Step, Entry> steps_;
  std::map<int, std::map<int, EvaluationPart>> evaluations_;
};

}  // namespace pp::run
