// Forwards alone: what an evaluation or an inference does with them.
#include <algorithm>
#include <utility>

#include "librun/worker/actions.h"

namespace pp::run {

namespace {

class Evaluate final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    const Operation& operation = turn.operation;
    const Stage& stage = stage_of(turn);
    turn.begin();
    state_.feed->fill(operation, turn.inputs, state_.memory);
    const Inference* const inference = state_.job.inference.get();
    const PassPiece* const piece = inference ? inference->piece(operation) : nullptr;
    std::vector<double> shares;
    if (stage.segment().has_loss())
      shares = state_.loss_weights.of_evaluation(operation, *state_.feed).label_shares;
    turn.pass = piece == nullptr ? stage.evaluate(turn.inputs, state_.generator, nullptr, {}, std::move(shares))
                                 : stage.evaluate(turn.inputs, state_.generator, &piece->piece,
                                                  caches_of(*piece, operation.op.stage, stage));
    turn.end();
    turn.outgoing = turn.pass.outputs;
  }

 private:
  /// What the stage's attention keeps of the pass's sequences. Lets go those of groups that have ended.
  std::span<model::LayerCache> caches_of(const PassPiece& piece, StageId id, const Stage& stage) {
    for (const std::size_t group : piece.ended) caches_.erase({id, group});
    std::vector<model::LayerCache>& caches = caches_[{id, piece.group}];
    caches.resize(stage.segment().layers().size());
    return caches;
  }

  /// By stage and group of sequences.
  std::map<std::pair<StageId, std::size_t>, std::vector<model::LayerCache>> caches_;
};

class Score final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    state_.job.ledger.evaluation(state_.epoch, turn.operation.op.micro_batch, part_of(turn));
  }

 private:
  EvaluationPart part_of(const Turn& turn) const {
    const Job& job = state_.job;
    const model::Segment& segment = stage_of(turn).segment();
    const auto find = [&](const TensorSource& source) -> at::Tensor {
      const auto& in = segment.inputs();
      const auto& out = segment.outputs();
      if (const auto i = std::find(in.begin(), in.end(), source); i != in.end())
        return turn.inputs[static_cast<std::size_t>(i - in.begin())];
      if (const auto o = std::find(out.begin(), out.end(), source); o != out.end())
        return turn.pass.outputs[static_cast<std::size_t>(o - out.begin())];
      return {};
    };
    const auto data_of = [&](const auto& reader) {
      model::Tensors data;
      for (const TensorSource& source : reader.sources()) data.push_back(find(source));
      return data;
    };
    EvaluationPart part{.weight = static_cast<double>(turn.operation.rows)};
    if (job.label_count && !job.label_count->apart())
      part.weight = (*job.label_count)(data_of(*job.label_count)).front();
    if (part.weight != 0) part.loss_sum = turn.pass.loss.item<double>() * part.weight;
    if (!job.right_answers) return part;
    const model::Tensors told = data_of(*job.right_answers);
    if (!std::ranges::all_of(told, [](const at::Tensor& tensor) { return tensor.defined(); })) return part;
    const auto [right, all] = (*job.right_answers)(told);
    part.correct = right;
    part.predictions = all;
    return part;
  }
};

/// The model's outputs and times of an inference's pass.
class HandOut final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    turn.inputs.clear();
    Job& job = state_.job;
    const Operation& operation = turn.operation;
    const std::vector<TensorSource>& wanted = job.setup.model.outputs;
    const std::vector<TensorSource>& here = stage_of(turn).segment().outputs();
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      const auto found = std::ranges::find(here, wanted[k]);
      if (found == here.end()) continue;
      job.inference->take(operation, k, turn.pass.outputs[static_cast<std::size_t>(found - here.begin())]);
    }
    WorkerRecord& record = state_.record;
    const Seconds busy = turn.ended_at() - turn.begun_at();
    record.busy.back() += busy;
    record.op_times[{operation.op.kind, operation.op.stage}].add(busy);
    record.peak = std::max(record.peak, state_.memory.peak());
    job.passes.hand_in(operation.step, turn.begun_at(), turn.ended_at());
  }
};

}  // namespace

std::unique_ptr<Action> make_evaluation(plan::InstructionKind kind, Shared& shared) {
  if (kind == plan::InstructionKind::evaluate) return std::make_unique<Evaluate>(shared);
  if (kind == plan::InstructionKind::score) return std::make_unique<Score>(shared);
  return std::make_unique<HandOut>(shared);
}

}  // namespace pp::run
