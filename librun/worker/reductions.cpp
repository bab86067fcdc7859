// What a worker does together with others before an update: gradients of replicas and of shared weights, sums
// of batch norm, and whether the update is made.
#include "librun/worker/reductions.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "libplan/cost/stage_cost.h"
#include "libprofile/core/error.h"
#include "librun/worker/actions.h"

namespace pp::run {

namespace {

/// Tensors and what they are, as a list of tensors: the labels first.
class Labelled {
 public:
  using Label = std::array<std::int64_t, 4>;

  void add(const Label& label, at::Tensor tensor) {
    labels_.push_back(label);
    tensors_.push_back(std::move(tensor));
  }

  std::vector<at::Tensor> take() && {
    at::Tensor labels = at::empty({static_cast<std::int64_t>(labels_.size()), 4}, at::kLong);
    auto* to = labels.mutable_data_ptr<std::int64_t>();
    for (const Label& label : labels_) to = std::copy(label.begin(), label.end(), to);
    tensors_.insert(tensors_.begin(), std::move(labels));
    return std::move(tensors_);
  }

  /// visit(label, tensor) for each of what take() returned.
  template <class Visit>
  static void read(const std::vector<at::Tensor>& list, Visit&& visit) {
    const auto* from = list.front().const_data_ptr<std::int64_t>();
    for (std::size_t i = 1; i < list.size(); ++i, from += 4)
      visit(Label{from[0], from[1], from[2], from[3]}, list[i]);
  }

 private:
  std::vector<Label> labels_;
  std::vector<at::Tensor> tensors_;
};

constexpr std::int64_t kLoss = -1;  // in the place of a layer

at::Tensor copy_on(const at::Device& device, const at::Tensor& tensor) {
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

// Where replicas divide the optimizer's state they need the whole sums of what other stages have copies of, to
// bring it to these.
Seconds spread_tied(WorkerState& state, StageId id, Stage& stage) {
  Seconds elapsed{};
  for (std::size_t tied = 0; tied < state.job.plan.tied.size(); ++tied) {
    if (std::ranges::count(state.job.plan.tied[tied].stages, id) == 0) continue;
    const std::vector<Slice> slices = stage.tied_slices(state.job.tied_owner(tied));
    if (slices.empty()) continue;
    state.await_finish();
    elapsed +=
        state.job.collectives->spread(state.job.replica_group(id), state.id, stage.complete_gradient(), slices);
  }
  return elapsed;
}

// Where every mini-batch has an update of its own, each replica brings the gradient of one; the update of the
// round is for all of their samples, or labels that count.
double share_of_round(WorkerState& state, const Operation& operation) {
  if (!state.job.setup.streams || state.job.plan.training.micro_batches != 1) return 1;
  const auto replicas = static_cast<Step>(state.job.plan.stages[index(operation.op.stage)].workers.size());
  const StepRange& range = state.range;
  const Step first = operation.step - (operation.step - range.first) % replicas;
  const auto weight = [&](Step step) {
    return state.loss_weights.of_step(step, range.epoch_first, *state.feed);
  };
  double all = 0;
  for (Step i = first; i < first + replicas; ++i) all += weight(i);
  return weight(operation.step) / all;
}

void reduce_statistics(WorkerState& state, StageId id, Stage& stage) {
  Labelled mine;
  for (const model::BatchStatistics& layer : stage.statistics()) {
    mine.add({layer.micro_batch, layer.layer, layer.buffer, layer.count}, layer.mean);
    mine.add({layer.micro_batch, layer.layer, layer.buffer, layer.count}, layer.inverse_deviation);
  }
  Statistics all;
  state.job.collectives->gather(
      state.job.replica_group(id), state.id, std::move(mine).take(), [&](const Collectives::Parts& parts) {
        for (const std::vector<at::Tensor>& part : parts) {
          bool second = false;
          Labelled::read(part, [&](const Labelled::Label& label, const at::Tensor& tensor) {
            if (!second)
              all.push_back({static_cast<int>(label[1]),
                             static_cast<int>(label[2]),
                             label[3],
                             {},
                             {},
                             static_cast<int>(label[0])});
            (second ? all.back().inverse_deviation : all.back().mean) = copy_on(state.device, tensor);
            second = !second;
          });
        }
        state.await_finish();
      });
  stage.statistics() = std::move(all);
}

class BeginReduce final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    if (turn.operation.ends_step) turn.observer = shared_.sums.begin(state_, turn.operation, stage_of(turn));
  }
};

class Reduce final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    const StageId id = turn.operation.op.stage;
    Stage& stage = stage_of(turn);
    turn.begin();
    Seconds elapsed = hides_sums(state_.job, id) ? shared_.sums.finish(state_, turn.operation, stage)
                                                 : add(turn.operation, stage);
    elapsed += spread_tied(state_, id, stage);
    if (stage.has_statistics()) reduce_statistics(state_, id, stage);
    turn.end_after(elapsed);
  }

 private:
  Seconds add(const Operation& operation, Stage& stage) {
    const at::Tensor gradient = stage.complete_gradient();
    const double share = share_of_round(state_, operation);
    if (share != 1 && gradient.defined()) gradient.mul_(share);
    state_.await_finish();
    const std::size_t group = state_.job.replica_group(operation.op.stage);
    const std::vector<Slice> slices = stage.gradient_slices();
    Collectives& collectives = *state_.job.collectives;
    return slices.empty() ? collectives.sum(group, state_.id, gradient)
                          : collectives.reduce(group, state_.id, gradient, slices);
  }
};

// Copies of shared weights in several stages; stages with replicas have reduced theirs before. Every worker
// adds all uses in ascending layer order, as one stage does before its update.
class Tie final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    const auto tied = static_cast<std::size_t>(turn.operation.op.micro_batch);
    const int owner = state_.job.tied_owner(tied);
    turn.begin();
    Labelled mine;
    for (const StageId id : state_.job.plan.tied[tied].stages) {
      const auto stage = state_.stages.find(id);
      if (stage == state_.stages.end()) continue;
      for (const auto& [use, gradient] : stage->second.tied_gradients(owner)) {
        if (gradient.defined()) mine.add({use.first, static_cast<std::int64_t>(use.second), 0, 0}, gradient);
      }
    }
    turn.end(turn.begun_at(), state_.await_finish());
    std::map<std::size_t, at::Tensor> sums;
    state_.job.collectives->gather(
        state_.job.tied_group(tied), state_.id, std::move(mine).take(), [&](const Collectives::Parts& parts) {
          UseGradients uses;  // in ascending layer order, each once
          for (const std::vector<at::Tensor>& part : parts) {
            Labelled::read(part, [&](const Labelled::Label& label, const at::Tensor& tensor) {
              uses.try_emplace({static_cast<int>(label[0]), static_cast<std::size_t>(label[1])}, tensor);
            });
          }
          for (const auto& [use, gradient] : uses) {
            at::Tensor& sum = sums[use.second];
            if (sum.defined()) {
              sum.add_(gradient.to(state_.device));
            } else {
              sum = copy_on(state_.device, gradient);
            }
          }
          state_.await_finish();
        });
    for (const StageId id : state_.job.plan.tied[tied].stages) {
      const auto stage = state_.stages.find(id);
      if (stage != state_.stages.end()) stage->second.set_tied_gradients(owner, sums);
    }
  }
};

// Every parameter counts once, added in model order: the same bits and the same decision for every plan.
class Judge final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;

  void run(Turn& turn) override {
    if (state_.job.options.on_nan == OnNan::stop && !shared_.verdict.refused.empty()) return;  // as everybody
    if (shared_.verdict.scale.factor != 1) scale_gradients(1 / shared_.verdict.scale.factor);
    const bool skips = state_.job.options.scales_dynamically();
    double sum = 0;
    shared_.verdict.refused.clear();
    for (const auto& [key, norm] : gather_norms()) {
      sum += norm.square;
      const bool loss = key.first == kLoss;
      if (!(state_.job.options.on_nan || skips) || !shared_.verdict.refused.empty() ||
          (!loss && std::isfinite(norm.square)))
        continue;
      const std::string what = loss
                                   ? "the loss of micro-batch " + std::to_string(key.second)
                                   : "the gradient of layer " +
                                         state_.job.plan.model.layers[static_cast<std::size_t>(key.first)].name;
      shared_.verdict.refused = "step " + std::to_string(turn.operation.step + 1) + ": stage " +
                                std::to_string(norm.stage) + ": " + what + " is not a finite number";
    }
    if (skips) {
      if (!shared_.verdict.refused.empty() && shared_.verdict.scale.factor <= kLeastLossScale) {
        throw Error(ErrorKind::run, shared_.verdict.refused +
                                        ", although the loss scale has fallen to 2^-24; lower the learning "
                                        "rate, or check the data");
      }
      shared_.verdict.scale = next_loss_scale(shared_.verdict.scale, shared_.verdict.refused.empty());
    }
    if (!shared_.verdict.refused.empty()) return;
    shared_.verdict.gradient_norm = std::sqrt(sum);
    if (state_.job.options.clip_norm) clip(*shared_.verdict.gradient_norm);
  }

 private:
  struct Norm {
    int stage = 0;
    double square = 0;
  };

  // Square norms of the whole gradient's parameters by (layer, index), and losses that are not finite by
  // (kLoss, micro-batch), as all workers bring them. Of a parameter that several owners have each brings its
  // blocks; all are added from the first one on.
  std::map<std::pair<std::int64_t, std::int64_t>, Norm> gather_norms() {
    state_.log->flush();
    const std::optional<int> infinite = state_.log->take_infinite_loss();
    Labelled mine;
    for (auto& [id, stage] : state_.stages) {
      if (stage.segment().has_loss() && infinite)
        mine.add({kLoss, *infinite, number(id), 0}, at::zeros({1}, at::kDouble));
      if (!state_.is_first(id) && !shares_state(state_.job.plan, id))
        continue;  // replicas have the same gradient
      for (const Stage::SquareNorm& norm : stage.square_norms())
        mine.add({norm.layer, static_cast<std::int64_t>(norm.index), number(id), norm.first_block},
                 at::tensor(norm.squares, at::kDouble));
    }
    std::map<std::array<std::int64_t, 3>, std::pair<int, at::Tensor>> blocks;  // by layer, index, first block
    state_.job.collectives->gather(
        state_.job.everybody(), state_.id, std::move(mine).take(), [&](const Collectives::Parts& parts) {
          for (const std::vector<at::Tensor>& part : parts) {
            Labelled::read(part, [&](const Labelled::Label& label, const at::Tensor& tensor) {
              blocks[{label[0], label[1], label[3]}] = {static_cast<int>(label[2]), tensor.clone()};
            });
          }
        });
    std::map<std::pair<std::int64_t, std::int64_t>, Norm> norms;
    for (const auto& [key, part] : blocks) {
      const auto& [stage, squares] = part;
      Norm& norm = norms.try_emplace({key[0], key[1]}, Norm{stage, 0}).first->second;
      const auto* const values = squares.const_data_ptr<double>();
      norm.square = std::accumulate(values, values + squares.numel(), norm.square);
    }
    return norms;
  }

  // The factor is that of torch.nn.utils.clip_grad_norm_.
  void clip(double norm) {
    const double factor = *state_.job.options.clip_norm / (norm + 1e-6);
    if (factor < 1) scale_gradients(factor);
  }

  void scale_gradients(double factor) {
    for (auto& [id, stage] : state_.stages) stage.scale_gradient(factor);
  }
};

}  // namespace

OverlappedSum::OverlappedSum(Collectives& collectives, std::size_t group, WorkerId me, Stage& stage,
                             double share)
    : collectives_(collectives),
      group_(group),
      me_(me),
      stage_(stage),
      share_(share),
      slices_(stage.gradient_slices()) {
  left_ = stage.buckets(plan::kBucket);
  std::ranges::reverse(left_);
}

void OverlappedSum::begin_down_to(int layer) {
  while (!left_.empty() && left_.back().layer >= layer) {
    const at::Tensor part = stage_.complete_gradient(left_.back());
    if (share_ != 1) part.mul_(share_);
    const FlatLayout::Bucket& bucket = left_.back();
    begun_.push_back(
        slices_.empty()
            ? collectives_.begin_sum(group_, me_, part)
            : collectives_.begin_reduce(group_, me_, part, slices_within(slices_, bucket.begin, bucket.end)));
    left_.pop_back();
  }
}

void OverlappedSum::end(int position, Phase) {
  begin_down_to(position);
  for (const auto& sum : begun_) {
    if (!sum->advance()) break;
  }
}

Seconds OverlappedSum::finish() {
  begin_down_to(0);
  Seconds elapsed{};
  for (const auto& sum : begun_) sum->add();
  for (const auto& sum : begun_) sum->finish();
  for (const auto& sum : begun_) elapsed += sum->spent();
  return elapsed;
}

// A replica that has no micro-batch in the step begins at its AR.
OverlappedSum& ReplicaSums::sum_of(WorkerState& state, const Operation& operation, Stage& stage) {
  const StageId id = operation.op.stage;
  const auto found = sums_.find(id);
  if (found != sums_.end()) return found->second;
  return sums_
      .try_emplace(id, *state.job.collectives, state.job.replica_group(id), state.id, stage,
                   share_of_round(state, operation))
      .first->second;
}

model::LayerObserver* ReplicaSums::begin(WorkerState& state, const Operation& operation, Stage& stage) {
  if (sums_.contains(operation.op.stage))
    throw Error(ErrorKind::internal, "gradients are added to a sum that is on its way");
  return &sum_of(state, operation, stage);
}

Seconds ReplicaSums::finish(WorkerState& state, const Operation& operation, Stage& stage) {
  const Seconds elapsed = sum_of(state, operation, stage).finish();
  sums_.erase(operation.op.stage);
  return elapsed;
}

std::unique_ptr<Action> make_reduction(plan::InstructionKind kind, Shared& shared) {
  if (kind == plan::InstructionKind::begin_reduce) return std::make_unique<BeginReduce>(shared);
  if (kind == plan::InstructionKind::reduce) return std::make_unique<Reduce>(shared);
  if (kind == plan::InstructionKind::tie) return std::make_unique<Tie>(shared);
  return std::make_unique<Judge>(shared);
}

}  // namespace pp::run
