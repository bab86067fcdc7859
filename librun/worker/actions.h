// The instructions at work. Each maker's class has what it needs of the worker, and its own state.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "librun/worker/reductions.h"
#include "librun/worker/serving.h"
#include "librun/worker/swapping.h"
#include "librun/worker/worker_state.h"

namespace pp::run {

/// What was decided of a step's updates, the same on all workers.
struct Verdict {
  LossScale scale;
  std::string refused = {};  ///< why updates are not made; with OnNan::stop also those behind them
  std::optional<double> gradient_norm = std::nullopt;  ///< until it is written down
};

/// What instructions of a worker have in common.
struct Shared {
  WorkerState& state;
  Verdict verdict;
  ReplicaSums sums;
  std::unique_ptr<Swapping> swapping = nullptr;  ///< null: weights stay on the device
  std::unique_ptr<Serving> serving = nullptr;    ///< null: no parameter server
};

/// An action of a worker, whose state outlives it.
class WorkerAction : public Action {
 public:
  explicit WorkerAction(Shared& shared) : shared_(shared), state_(shared.state) {}

 protected:
  Stage& stage_of(const Turn& turn) const { return state_.stages.at(turn.operation.op.stage); }

  Shared& shared_;
  WorkerState& state_;
};

/// `shared` must outlive it.
std::unique_ptr<Action> make_action(const plan::Instruction& instruction, Shared& shared);

// One kind each.
std::unique_ptr<Action> make_message(const plan::Instruction& instruction, Shared& shared);  // messages.cpp
std::unique_ptr<Action> make_pass(plan::InstructionKind kind, Shared& shared);               // passes.cpp
std::unique_ptr<Action> make_reduction(plan::InstructionKind kind, Shared& shared);          // reductions.cpp
std::unique_ptr<Action> make_update(plan::InstructionKind kind, Shared& shared);             // updates.cpp
std::unique_ptr<Action> make_swap(const plan::Instruction& instruction, Shared& shared);     // swapping.cpp
std::unique_ptr<Action> make_evaluation(plan::InstructionKind kind, Shared& shared);         // evaluate.cpp

/// Behind a range whose gradients lag: receives those of the last micro-batches, which no backward takes.
void drop_late_gradients(const WorkerState& state);

}  // namespace pp::run
