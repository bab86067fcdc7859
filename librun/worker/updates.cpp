// What a step's gradients become.
#include <utility>

#include "librun/worker/actions.h"

namespace pp::run {

namespace {

class Update final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    const Operation& operation = turn.operation;
    Stage& stage = stage_of(turn);
    Verdict& verdict = shared_.verdict;
    turn.begin();
    LoggedOp& logged = state_.log->current();
    logged.updates = true;
    logged.gradient_norm = std::exchange(verdict.gradient_norm, std::nullopt);
    logged.not_finite = verdict.refused;
    if (!verdict.refused.empty()) return stage.drop_update();
    stage.update(state_.step_of(operation), state_.rate(operation));
    if (shared_.swapping) shared_.swapping->updated(operation.op.stage, operation.step + 1);
  }
};

// What this replica copies counts as its work, waiting for the others does not.
class Spread final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    if (!shared_.verdict.refused.empty()) return;
    const StageId id = turn.operation.op.stage;
    const Stage& stage = stage_of(turn);
    Seconds elapsed = state_.await_finish() - turn.begun_at();
    if (const std::vector<Slice> slices = stage.weight_slices(); !slices.empty())
      elapsed +=
          state_.job.collectives->spread(state_.job.replica_group(id), state_.id, stage.flat_weights(), slices);
    turn.end_after(elapsed);
  }
};

class Fetch final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;
  void run(Turn& turn) override { shared_.serving->replica().before_forward(stage_of(turn)); }
};

class Push final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    turn.begin();
    state_.log->current().updates = true;
    shared_.serving->replica().update(stage_of(turn), state_.rate(turn.operation));
  }
};

}  // namespace

std::unique_ptr<Action> make_update(plan::InstructionKind kind, Shared& shared) {
  if (kind == plan::InstructionKind::update) return std::make_unique<Update>(shared);
  if (kind == plan::InstructionKind::spread) return std::make_unique<Spread>(shared);
  if (kind == plan::InstructionKind::fetch) return std::make_unique<Fetch>(shared);
  return std::make_unique<Push>(shared);
}

}  // namespace pp::run
