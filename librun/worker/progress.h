// The two-way traffic between the driver and its workers: commands say what to do and let steps begin, the
// ledger brings back losses, times and evaluation sums. Free of Torch.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
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
  enum class Kind { train, evaluate, infer, snapshot, stop };
  Kind kind = Kind::stop;
  Stretch stretch = {};  ///< train: its steps; evaluate, infer: from 0, passes
  int epoch = 0;
  Step step = 0;      ///< snapshot: updates so far
  bool last = false;  ///< snapshot: no training follows
};

/// What a driver does with its commands, for those of another process to repeat.
struct Order {
  enum class Kind { append, grant, cut };
  Kind kind = Kind::append;
  Command command = {};
  Step end = 0;                 ///< grant
  bool evaluation_too = false;  ///< cut
};

/// The driver's list of commands, given in advance and read by every worker at its own pace. Steps of training
/// are granted a little ahead, so that they follow each other without a barrier, across stretches too. Training
/// can be cut short: then every worker leaves it after the same step. A step that is granted when a worker
/// comes to it begins without a lock.
class Commands {
 public:
  /// Whose workers read the commands: all, or those of this process. Then others read theirs, which take the
  /// same decisions from the same orders: a cut takes back only what has not been granted.
  struct Readers {
    bool alone = true;
    std::vector<WorkerId> here = {};  ///< where not alone
  };
  /// Training begins and ends in whole rounds of `round` steps.
  explicit Commands(Coordinator& coordinator, Step round = 1, const Readers& readers = {true, {}});

  /// Called with each order of the driver, in their sequence.
  void mirror(std::function<void(const Order&)> tell) { tell_ = std::move(tell); }
  /// Repeats what the driver of another process did.
  void apply(const Order& order);

  /// The driver's side. Appends what is to be done; stretches follow each other.
  void train(int epoch, Stretch stretch);
  void evaluate(int epoch, Step count);
  /// Passes, which are granted as steps of training are; nothing is trained before or after.
  void infer(Step count);
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
    explicit Entry(const Command& what) : command(what), begun(what.stretch.first), open(what.stretch.end) {}
    Command command;
    std::atomic<Step> begun;  ///< steps below it may have been begun by some worker
    std::atomic<Step> open;   ///< steps below it need no look at the lock; the stretch's end but during a cut
    bool cancelled = false;
  };
  /// Where a worker stands; written by itself.
  struct Place {
    std::size_t position = 0;  ///< entries that it has begun, since the beginning of the run
    Entry* current = nullptr;
  };
  void append(const Command& command);
  Entry& entry(std::size_t position) { return entries_[position - dropped_]; }
  /// Entries that every worker has left.
  void drop();

  /// Where an entry ends when it is cut short.
  Step least_end(const Entry& entry) const;

  Monitor monitor_;
  Step round_;
  bool alone_;
  std::function<void(const Order&)> tell_;
  std::atomic<Step> granted_ = 0;
  std::deque<Entry> entries_;
  std::size_t dropped_ = 0;    ///< entries before the first one
  Step trained_ = 0;           ///< end of the last training among them
  std::vector<Place> places_;  ///< per worker
};

struct StepResult {
  std::vector<double> losses;          ///< mean loss of each micro-batch, in micro-batch order
  std::vector<double> weights;         ///< of these: samples, or labels that count (LossWeight)
  Coordinator::Clock::time_point end;  ///< of the last update
  std::vector<StepFigures> workers;    ///< what each handed in with its updates, joined
};

/// Sums over a micro-batch of the test set.
struct EvaluationPart {
  double loss_sum = 0;  ///< mean loss * weight
  double weight = 0;    ///< samples, or labels that count (model::LabelCount)
  std::int64_t correct = 0;
  std::int64_t predictions = 0;  ///< of cross_entropy: labels that count; 0: no accuracy
};

/// One thing that a worker hands in, for the ledger of another process.
struct LedgerEntry {
  enum class Kind { loss, update, evaluation };
  Kind kind = Kind::loss;
  Step step = 0;  ///< evaluation: epoch
  int micro_batch = 0;
  double loss = 0, weight = 0;
  WorkerId worker{};
  Coordinator::Clock::time_point end{};
  StepFigures figures{};
  EvaluationPart part{};
};

/// What makes a step or an evaluation complete.
struct LedgerShape {
  int micro_batches = 1;  ///< losses of a step, at most
  int updates = 1;        ///< of a step, over all stages and replicas; a worker's losses come before
  int evaluations = 0;    ///< micro-batches of an evaluation
  Step steps = 2;         ///< that can be under way at once: what is granted, less what was taken
};

/// Workers write into places of their own; who completes the step that the driver sleeps for wakes it.
class Ledger {
 public:
  Ledger(Coordinator& coordinator, LedgerShape shape);

  void loss(Step step, int micro_batch, double value, double weight);
  /// A stage of a worker has been updated.
  void updated(Step step, WorkerId worker, Coordinator::Clock::time_point end, const StepFigures& figures);
  void evaluation(int epoch, int micro_batch, const EvaluationPart& part);

  /// From now on all of it goes there instead; called by the workers.
  void relay(std::function<void(LedgerEntry)> there) { there_ = std::move(there); }
  void enter(const LedgerEntry& entry);

  /// The driver's side: blocks until all of it is there, and takes it; nothing when `give_up` ended the wait
  /// (Monitor::wait_driver). Steps before `last` wake nobody: to wake a sleeping core takes the worker tens of
  /// microseconds. They are found when `last` is complete, or within 50 ms; so give more than `step` itself
  /// only where steps are completed in order.
  std::optional<StepResult> await_step(Step step, Step last, const std::function<bool()>& give_up);
  std::optional<EvaluationPart> await_evaluation(int epoch, const std::function<bool()>& give_up);

 private:
  struct Part {  ///< of one worker
    Coordinator::Clock::time_point end;
    StepFigures figures;
  };
  struct Slot {
    std::atomic<int> missing;  ///< updates
    std::vector<double> losses, weights;
    std::vector<Part> workers;
  };
  Slot& slot(Step step) { return slots_[static_cast<std::size_t>(step % shape_.steps)]; }
  void hand_in(Step step);

  Monitor monitor_;
  std::function<void(LedgerEntry)> there_;
  LedgerShape shape_;
  std::vector<Slot> slots_;        ///< a ring
  std::atomic<Step> awaited_ = 0;  ///< the first step whose completion wakes the driver
  std::map<int, std::map<int, EvaluationPart>> evaluations_;
};

}  // namespace pp::run
