// The passes of a training.
#include <utility>

#include "librun/worker/actions.h"

namespace pp::run {

namespace {

class ForwardPass final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    const Operation& operation = turn.operation;
    const int pass = operation.op.micro_batch;
    Stage& stage = stage_of(turn);
    const bool has_loss = stage.segment().has_loss();
    const LossWeight weight = has_loss ? state_.loss_weight(operation) : LossWeight{};
    turn.begin();
    state_.feed->fill(operation, turn.inputs, state_.memory);
    stage.predict_for_forward(state_.step_of(operation), state_.rate(operation));
    const Keep keep = operation.run_again || operation.alone ? Keep::inputs : Keep::graphs;
    turn.outgoing = stage.forward(pass, state_.step_of(operation), turn.inputs, state_.key(operation),
                                  state_.generator, keep, weight.label_shares);
    if (has_loss) state_.log->add_loss(stage.loss(pass), weight);
    if (shared_.swapping) return;  // the inputs are stashed
    turn.inputs.clear();
    if (!operation.alone) return;
    state_.log->current().updates = true;  // the stage does nothing else with it
    stage.forget(pass);
  }
};

// What the data provide is cut again, not kept.
class RecomputePass final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    const Operation& operation = turn.operation;
    const int pass = operation.op.micro_batch;
    Stage& stage = stage_of(turn);
    std::vector<double> label_shares;
    if (stage.segment().has_loss()) label_shares = state_.loss_weight(operation).label_shares;
    turn.begin();
    state_.feed->fill(operation, turn.inputs, state_.memory);
    stage.predict_for_backward(state_.rate(operation));
    if (shared_.swapping) {
      stage.forward(pass, state_.step_of(operation), turn.inputs, state_.key(operation), state_.generator,
                    Keep::graphs, std::move(label_shares));
    } else {
      stage.recompute(pass, turn.inputs, state_.key(operation), state_.generator, std::move(label_shares));
    }
  }
};

class BackwardPass final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    const Operation& operation = turn.operation;
    Stage& stage = stage_of(turn);
    const double weight =
        stage.segment().has_loss() ? state_.loss_weight(operation).share() * shared_.verdict.scale.factor : 1;
    turn.begin();
    stage.predict_for_backward(state_.rate(operation));
    turn.outgoing = operation.op.kind == plan::OpKind::backward
                        ? stage.backward(operation.op.micro_batch, turn.gradients, weight, turn.observer)
                        : stage.input_gradient(operation.op.micro_batch, turn.gradients, weight);
    turn.gradients.clear();
  }
};

class WeightGradientPass final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    Stage& stage = stage_of(turn);
    turn.begin();
    stage.predict_for_backward(state_.rate(turn.operation));
    stage.weight_gradient(turn.operation.op.micro_batch, turn.observer);
  }
};

}  // namespace

std::unique_ptr<Action> make_pass(plan::InstructionKind kind, Shared& shared) {
  if (kind == plan::InstructionKind::forward) return std::make_unique<ForwardPass>(shared);
  if (kind == plan::InstructionKind::recompute) return std::make_unique<RecomputePass>(shared);
  if (kind == plan::InstructionKind::weight_gradient) return std::make_unique<WeightGradientPass>(shared);
  return std::make_unique<BackwardPass>(shared);
}

}  // namespace pp::run
