// What workers bring back to the driver: losses, times and sums of evaluations, and in an inference the
// passes that are complete. Free of Torch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "librun/options/position.h"
#include "librun/report/record.h"
#include "librun/threads/coordinator.h"

namespace pp::run {

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

/// What the workers of a process hand in together, for the ledger of another one.
struct LedgerEntry {
  struct Loss {
    Step step = 0;
    int micro_batch = 0;
    double value = 0, weight = 0;
  };
  struct Update {
    Step step = 0;
    WorkerId worker{};
    Coordinator::Clock::time_point end{};
    StepFigures figures{};
  };
  struct Evaluation {
    int epoch = 0;
    int micro_batch = 0;
    EvaluationPart part{};
  };
  std::vector<Loss> losses = {};
  std::vector<Update> updates = {};
  std::vector<Evaluation> evaluations = {};
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

  /// From now on all of it goes there instead, with every `updates`-th update; called by the workers.
  void relay(int updates, std::function<void(LedgerEntry)> there);
  /// A worker has done its part of an evaluation.
  void evaluated();
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
  /// Adds to what goes to another process, and sends what `take` takes of it, if anything.
  template <class Add, class Take>
  void gather(Add&& add, Take&& take);

  Monitor monitor_;
  LedgerShape shape_;
  std::vector<Slot> slots_;        ///< a ring
  std::atomic<Step> awaited_ = 0;  ///< the first step whose completion wakes the driver
  std::map<int, std::map<int, EvaluationPart>> evaluations_;
  std::function<void(LedgerEntry)> there_;  ///< none: this ledger keeps all
  std::size_t updates_there_ = 1;           ///< that go together
  std::mutex mutex_;                        ///< of what follows
  LedgerEntry leaving_;
};

struct PassTime {
  Step pass = 0;
  Coordinator::Clock::time_point begin;  ///< of its first forward
  Coordinator::Clock::time_point end;    ///< of its last one
};

class Passes {
 public:
  /// Every stage hands in each pass once.
  Passes(Coordinator& coordinator, int stages);

  void hand_in(Step pass, Coordinator::Clock::time_point begin, Coordinator::Clock::time_point end);

  /// The driver's side: blocks until passes are complete, and takes them; nothing when `give_up` ended the wait
  /// (Monitor::wait_driver).
  std::optional<std::vector<PassTime>> await(const std::function<bool()>& give_up);

 private:
  struct Open {
    PassTime time;
    int missing;
  };
  Monitor monitor_;
  int stages_;
  std::map<Step, Open> open_;
  std::vector<PassTime> complete_;
};

}  // namespace pp::run
