// What a step's gradients become.
#include <utility>

#include "librun/worker/actions.h"

namespace pp::run {

namespace {

class Update final : public Action {
 public:
  explicit Update(Shared& shared) : shared_(shared), state_(shared.state) {}

  void run(Turn& turn) override {
    const Operation& operation = turn.operation;
    Stage& stage = state_.stages.at(operation.op.stage);
    Verdict& verdict = shared_.verdict;
    turn.begin();
    LoggedOp& logged = state_.log->current();
    logged.updates = true;
    logged.gradient_norm = std::exchange(verdict.gradient_norm, std::nullopt);
    logged.not_finite = verdict.refused;
    if (!verdict.refused.empty()) return stage.drop_update();
    stage.update(operation.step - state_.range.first, state_.rate(operation));
    if (shared_.swapping) shared_.swapping->updated(operation.op.stage, operation.step + 1);
  }

 private:
  Shared& shared_;
  WorkerState& state_;
};

// What this replica copies counts as its work, waiting for the others does not.
class Spread final : public Action {
 public:
  explicit Spread(Shared& shared) : shared_(shared), state_(shared.state) {}

  void run(Turn& turn) override {
    if (!shared_.verdict.refused.empty()) return;
    const StageId id = turn.operation.op.stage;
    const Stage& stage = state_.stages.at(id);
    Seconds elapsed = state_.await_finish() - turn.begun_at();
    if (const std::vector<Slice> slices = stage.weight_slices(); !slices.empty())
      elapsed +=
          state_.job.collectives->spread(state_.job.replica_group(id), state_.id, stage.flat_weights(), slices);
    turn.end_after(elapsed);
  }

 private:
  Shared& shared_;
  WorkerState& state_;
};

class Fetch final : public Action {
 public:
  explicit Fetch(Shared& shared) : shared_(shared) {}
  void run(Turn& turn) override {
    shared_.serving->replica().before_forward(shared_.state.stages.at(turn.operation.op.stage));
  }

 private:
  Shared& shared_;
};

class Push final : public Action {
 public:
  explicit Push(Shared& shared) : shared_(shared), state_(shared.state) {}

  void run(Turn& turn) override {
    turn.begin();
    state_.log->current().updates = true;
    shared_.serving->replica().update(state_.stages.at(turn.operation.op.stage), state_.rate(turn.operation));
  }

 private:
  Shared& shared_;
  WorkerState& state_;
};

}  // namespace

std::unique_ptr<Action> make_update(InstructionKind kind, Shared& shared) {
  if (kind == InstructionKind::update) return std::make_unique<Update>(shared);
  if (kind == InstructionKind::spread) return std::make_unique<Spread>(shared);
  if (kind == InstructionKind::fetch) return std::make_unique<Fetch>(shared);
  return std::make_unique<Push>(shared);
}

}  // namespace pp::run
