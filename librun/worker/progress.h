// The two-way traffic between the driver and its workers: the gate lets them start steps, the ledger brings
// back losses, times and evaluation sums. Free of Torch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "librun/transport/coordinator.h"

namespace pp::run {

/// Unit: a step of the whole run, counted from 0; in a stream one mini-batch, that is one update.
using Unit = std::int64_t;

/// Units below a limit may start. The driver keeps the limit a little ahead, so that steps follow each other
/// without a barrier, and closes the gate to end the run: then every worker stops at the same unit.
class Gate {
 public:
  /// Units begin and end in whole rounds of `round`.
  explicit Gate(Coordinator& coordinator, Unit round = 1) : coordinator_(coordinator), round_(round) {}
  /// Blocks until `unit` is granted (true) or the gate is closed below it (false).
  bool admit(WorkerId worker, Unit unit);
  void grant(Unit end);
  /// Takes back what was granted and no worker has begun. Returns the limit that stays.
  Unit close();

 private:
  Coordinator& coordinator_;
  Unit round_;
  Unit end_ = 0;
  Unit begun_ = 0;  ///< units that some worker was admitted to
  bool closed_ = false;
};

struct UnitResult {
  std::vector<double> losses;          ///< mean loss of each micro-batch, in micro-batch order
  Coordinator::Clock::time_point end;  ///< when the last participant finished
};

/// Sums over a micro-batch of the test set.
struct EvaluationPart {
  double loss_sum = 0;  ///< mean loss * samples
  std::int64_t samples = 0;
  std::int64_t correct = 0;
  std::int64_t predictions = 0;  ///< of cross_entropy: samples, or positions of sequences; 0: no accuracy
};

/// What makes a unit or an evaluation complete.
struct LedgerShape {
  int micro_batches = 1;  ///< losses of a unit
  int participants = 1;   ///< workers of a step; stages of a streamed mini-batch
  int evaluations = 0;    ///< micro-batches of an evaluation
};

/// Wakes the driver only for what is complete.
class Ledger {
 public:
  Ledger(Coordinator& coordinator, LedgerShape shape) : coordinator_(coordinator), shape_(shape) {}

  void loss(Unit unit, int micro_batch, double value);
  /// One participant (a worker of a step, a stage of a streamed mini-batch) is done with the unit.
  void finish(Unit unit, Coordinator::Clock::time_point end);
  void evaluation(int epoch, int micro_batch, const EvaluationPart& part);

  /// The driver's side: blocks until all of it is there, and takes it; nothing when `give_up` ended the wait
  /// (Coordinator::wait_driver).
  std::optional<UnitResult> await_unit(Unit unit, const std::function<bool()>& give_up);
  std::optional<EvaluationPart> await_evaluation(int epoch, const std::function<bool()>& give_up);

 private:
  struct Entry {
    std::map<int, double> losses;
    int finished = 0;
    Coordinator::Clock::time_point end;
  };

  bool complete(const Entry& entry) const;

  Coordinator& coordinator_;
  LedgerShape shape_;
  std::map<Unit, Entry> units_;
  std::map<int, std::map<int, EvaluationPart>> evaluations_;
};

}  // namespace pp::run
