// What a worker does together with others before an update: gradients of replicas and of shared weights, sums
// of batch norm.
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
#include "libprofile/device/compute_device.h"
#include "librun/worker/worker.h"

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

bool Worker::overlaps_sums(StageId stage) const {
  return job_.plan.predicted.all_reduce_overlap > 0 && job_.collectives->overlaps(job_.replica_group(stage));
}

// A replica that has no micro-batch in the step begins at its AR.
OverlappedSum& Worker::sum_of(const Operation& operation, Stage& stage) {
  const StageId id = operation.op.stage;
  const auto found = sums_.find(id);
  if (found != sums_.end()) return found->second;
  return sums_.try_emplace(id, *job_.collectives, job_.replica_group(id), id_, stage, share_of_round(operation))
      .first->second;
}

model::LayerObserver* Worker::watches(const Operation& operation, Stage& stage) {
  if (sums_.contains(operation.op.stage))
    throw Error(ErrorKind::internal, "gradients are added to a sum that is on its way");
  return operation.completes_gradient && overlaps_sums(operation.op.stage) ? &sum_of(operation, stage)
                                                                           : nullptr;
}

void Worker::all_reduce(const Operation& operation, Stage& stage) {
  log_->begin(operation);
  Seconds elapsed{};
  if (overlaps_sums(operation.op.stage)) {
    elapsed = sum_of(operation, stage).finish();
    sums_.erase(operation.op.stage);
  } else {
    const at::Tensor gradient = stage.complete_gradient();
    const double share = share_of_round(operation);
    if (share != 1 && gradient.defined()) gradient.mul_(share);
    await_finish();
    const std::size_t group = job_.replica_group(operation.op.stage);
    const std::vector<Slice> slices = stage.gradient_slices();
    elapsed = slices.empty() ? job_.collectives->sum(group, id_, gradient)
                             : job_.collectives->reduce(group, id_, gradient, slices);
  }
  elapsed += spread_tied(operation.op.stage, stage);
  if (stage.has_statistics()) reduce_statistics(operation.op.stage, stage);
  const Time end = await_finish();
  log_->end(end - std::chrono::duration_cast<Coordinator::Clock::duration>(elapsed), end);
  note_peak();
}

// Where replicas divide the optimizer's state they need the whole sums of what other stages have copies of, to
// bring it to these.
Seconds Worker::spread_tied(StageId id, Stage& stage) {
  Seconds elapsed{};
  for (std::size_t tied = 0; tied < job_.plan.tied.size(); ++tied) {
    if (std::ranges::count(job_.plan.tied[tied].stages, id) == 0) continue;
    const std::vector<Slice> slices = stage.tied_slices(job_.tied_owner(tied));
    if (slices.empty()) continue;
    await_finish();
    elapsed += job_.collectives->spread(job_.replica_group(id), id_, stage.complete_gradient(), slices);
  }
  return elapsed;
}

// Where every mini-batch has an update of its own, each replica brings the gradient of one; the update of the
// round is for all of their samples, or labels that count.
double Worker::share_of_round(const Operation& operation) {
  if (!job_.setup.streams || job_.plan.training.micro_batches != 1) return 1;
  const auto replicas = static_cast<Step>(job_.plan.stages[index(operation.op.stage)].workers.size());
  const StepRange& range = context_.range;
  const Step first = operation.step - (operation.step - range.first) % replicas;
  const auto weight = [&](Step step) { return loss_weights_.of_step(step, range.epoch_first, *context_.feed); };
  double all = 0;
  for (Step i = first; i < first + replicas; ++i) all += weight(i);
  return weight(operation.step) / all;
}

void Worker::reduce_statistics(StageId id, Stage& stage) {
  Labelled mine;
  for (const model::BatchStatistics& layer : stage.statistics()) {
    mine.add({layer.micro_batch, layer.layer, layer.buffer, layer.count}, layer.mean);
    mine.add({layer.micro_batch, layer.layer, layer.buffer, layer.count}, layer.inverse_deviation);
  }
  Statistics all;
  job_.collectives->gather(
      job_.replica_group(id), id_, std::move(mine).take(), [&](const Collectives::Parts& parts) {
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
            (second ? all.back().inverse_deviation : all.back().mean) = copy_on(device_, tensor);
            second = !second;
          });
        }
        await_finish();
      });
  stage.statistics() = std::move(all);
}

// Copies of shared weights in several stages; stages with replicas have reduced theirs before. Every worker
// adds all uses in ascending layer order, as one stage does before its update.
void Worker::tied_all_reduce(const Operation& operation) {
  const auto tied = static_cast<std::size_t>(operation.op.micro_batch);
  const int owner = job_.tied_owner(tied);
  log_->begin(operation);
  const Time begin = Coordinator::Clock::now();
  Labelled mine;
  for (const StageId id : job_.plan.tied[tied].stages) {
    const auto stage = stages_.find(id);
    if (stage == stages_.end()) continue;
    for (const auto& [use, gradient] : stage->second.tied_gradients(owner)) {
      if (gradient.defined()) mine.add({use.first, static_cast<std::int64_t>(use.second), 0, 0}, gradient);
    }
  }
  log_->end(begin, await_finish());
  note_peak();
  std::map<std::size_t, at::Tensor> sums;
  job_.collectives->gather(
      job_.tied_group(tied), id_, std::move(mine).take(), [&](const Collectives::Parts& parts) {
        UseGradients uses;  // in ascending layer order, each once
        for (const std::vector<at::Tensor>& part : parts) {
          Labelled::read(part, [&](const Labelled::Label& label, const at::Tensor& tensor) {
            uses.try_emplace({static_cast<int>(label[0]), static_cast<std::size_t>(label[1])}, tensor);
          });
        }
        for (const auto& [use, gradient] : uses) {
          at::Tensor& sum = sums[use.second];
          if (sum.defined()) {
            sum.add_(gradient.to(device_));
          } else {
            sum = copy_on(device_, gradient);
          }
        }
        await_finish();
      });
  for (const StageId id : job_.plan.tied[tied].stages) {
    const auto stage = stages_.find(id);
    if (stage != stages_.end()) stage->second.set_tied_gradients(owner, sums);
  }
}

// Square norms of the whole gradient's parameters by (layer, index), and losses that are not finite by
// (kLoss, micro-batch), as all workers bring them. Of a parameter that several owners have each brings its
// blocks; all are added from the first one on.
std::map<std::pair<std::int64_t, std::int64_t>, Worker::Norm> Worker::gather_norms() {
  log_->flush();
  const std::optional<int> infinite = log_->take_infinite_loss();
  Labelled mine;
  for (auto& [id, stage] : stages_) {
    if (stage.segment().has_loss() && infinite)
      mine.add({kLoss, *infinite, number(id), 0}, at::zeros({1}, at::kDouble));
    if (job_.plan.stages[index(id)].workers.front() != id_ && !job_.shares_state(id))
      continue;  // replicas have the same gradient
    for (const Stage::SquareNorm& norm : stage.square_norms())
      mine.add({norm.layer, static_cast<std::int64_t>(norm.index), number(id), norm.first_block},
               at::tensor(norm.squares, at::kDouble));
  }
  std::map<std::array<std::int64_t, 3>, std::pair<int, at::Tensor>> blocks;  // by layer, index, first block
  job_.collectives->gather(job_.everybody(), id_, std::move(mine).take(), [&](const Collectives::Parts& parts) {
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

// Every parameter counts once, added in model order: the same bits and the same decision for every plan.
void Worker::settle(Step step) {
  if (job_.options.on_nan == OnNan::stop && !refused_.empty()) return;  // as everybody
  if (loss_scale_.factor != 1) scale_gradients(1 / loss_scale_.factor);
  const bool skips = job_.options.scales_dynamically();
  double sum = 0;
  refused_.clear();
  for (const auto& [key, norm] : gather_norms()) {
    sum += norm.square;
    const bool loss = key.first == kLoss;
    if (!(job_.options.on_nan || skips) || !refused_.empty() || (!loss && std::isfinite(norm.square))) continue;
    const std::string what =
        loss ? "the loss of micro-batch " + std::to_string(key.second)
             : "the gradient of layer " + job_.plan.model.layers[static_cast<std::size_t>(key.first)].name;
    refused_ = "step " + std::to_string(step + 1) + ": stage " + std::to_string(norm.stage) + ": " + what +
               " is not a finite number";
  }
  if (skips) {
    if (!refused_.empty() && loss_scale_.factor <= kLeastLossScale) {
      throw Error(ErrorKind::run, refused_ +
                                      ", although the loss scale has fallen to 2^-24; lower the learning "
                                      "rate, or check the data");
    }
    loss_scale_ = next_loss_scale(loss_scale_, refused_.empty());
  }
  if (!refused_.empty()) return;
  gradient_norm_ = std::sqrt(sum);
  if (job_.options.clip_norm) clip(*gradient_norm_);
}

// The factor is that of torch.nn.utils.clip_grad_norm_.
void Worker::clip(double norm) {
  const double factor = *job_.options.clip_norm / (norm + 1e-6);
  if (factor < 1) scale_gradients(factor);
}

void Worker::scale_gradients(double factor) {
  for (auto& [id, stage] : stages_) stage.scale_gradient(factor);
}

}  // namespace pp::run
