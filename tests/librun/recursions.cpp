// Training with weight versions, by the book: what streams must equal.
#include <ATen/Parallel.h>

#include <algorithm>
#include <map>

#include "libplan/schedule/versions.h"
#include "tests/librun/whole_model.h"

namespace pp::test {

using namespace pp;

namespace {

// One stage of the recursion.
struct DelayedStage {
  int first = 0, last = 0;             // layers
  std::vector<LayerTensors> versions;  // of this epoch, whole-model tensors of which only [first, last) count
  plan::LookAhead ahead;               // policy predict, which runs on the following in place of versions
  std::vector<LayerTensors> in_forward, in_backward;
  std::unique_ptr<model::Optimizer> optimizer;
  std::vector<at::Tensor> round;  // mean over the samples
};

std::vector<DelayedStage> delayed_stages(const plan::Plan& plan, const run::RunOptions& options) {
  std::vector<DelayedStage> stages(plan.stages.size());
  int layer = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    stages[s].first = layer;
    stages[s].last = layer += static_cast<int>(plan.stages[s].layers.size());
    stages[s].optimizer = optimizer_of(plan, options);
    stages[s].ahead =
        plan::look_ahead(static_cast<int>(s), static_cast<int>(stages.size()), plan.training.micro_batches);
  }
  return stages;
}

LayerTensors predicted(const DelayedStage& stage, int updates, double learning_rate) {
  LayerTensors ahead = clone(stage.versions.back());
  stage.optimizer->predict(flat(stage.versions.back(), stage.first, stage.last),
                           flat(ahead, stage.first, stage.last), updates * learning_rate);
  return ahead;
}

// What passes run on while the last version is the newest.
void add_predictions(DelayedStage& stage, double learning_rate) {
  stage.in_forward.resize(stage.versions.size());
  stage.in_backward.resize(stage.versions.size());
  stage.in_forward.back() = predicted(stage, stage.ahead.forward, learning_rate);
  stage.in_backward.back() = predicted(stage, stage.ahead.backward, learning_rate);
}

void delayed_update(DelayedStage& stage, double learning_rate) {
  LayerTensors next = clone(stage.versions.back());
  stage.optimizer->step(flat(next, stage.first, stage.last), stage.round, learning_rate);
  stage.versions.push_back(std::move(next));
  stage.round.clear();
  add_predictions(stage, learning_rate);
}

// What the programs say of one stage: the version that each micro-batch uses, and the micro-batches of each
// update.
struct StreamStage {
  std::map<int, int> version_of;         // by micro-batch
  std::map<int, int> first_version;      // the newest at a mini-batch's first forward, by mini-batch
  std::map<int, int> updates_before;     // its backward: by micro-batch
  std::vector<std::vector<int>> rounds;  // by update
};

std::vector<StreamStage> stream_stages(const plan::Plan& plan, int count) {
  std::vector<StreamStage> stages(plan.stages.size());
  const bool predicts = plan.schedule.weight_policy == plan::WeightPolicy::predict;
  const auto version = [&](int j, std::size_t newest) {
    if (plan.schedule.weight_policy == plan::WeightPolicy::vertical_sync)
      return std::max(0, j - static_cast<int>(stages.size()) + 1);
    if (plan.schedule.weight_policy == plan::WeightPolicy::two_buffered)
      return std::max(0, j / plan.training.micro_batches - 1);
    return static_cast<int>(newest);
  };
  for (const plan::Worker& worker : plan.workers) {
    std::map<StageId, std::size_t> updates;
    for (const plan::Op& op : plan::expand(*worker.program.stream, count)) {
      StreamStage& stage = stages[index(op.stage)];
      const std::size_t update = updates[op.stage];
      if (op.kind == plan::OpKind::forward) {
        const int mini_batch = op.micro_batch / plan.training.micro_batches;
        const auto first = stage.first_version.emplace(mini_batch, static_cast<int>(update)).first->second;
        stage.version_of[op.micro_batch] = predicts ? first : version(op.micro_batch, update);
      }
      if (op.kind == plan::OpKind::update) ++updates[op.stage];
      if (!completes_backward(op.kind)) continue;
      stage.updates_before[op.micro_batch] = static_cast<int>(update);
      if (stage.rounds.size() <= update) stage.rounds.resize(update + 1);
      stage.rounds[update].push_back(op.micro_batch);
    }
  }
  return stages;
}

// Versions and gradients, each computed when it is first asked for: a gradient needs versions, a version the
// gradients of its round and the version before it.
class StreamRecursion {
 public:
  StreamRecursion(const plan::Plan& plan, const run::RunOptions& options)
      : options_(options),
        model_(plan, options),
        shape_(shape_of(plan, options, model_.samples())),
        order_(run::epoch_order(model_.samples(), options.seed, 0, options.shuffle)),
        stages_(delayed_stages(plan, options)),
        per_update_(plan.training.micro_batches),
        programs_(stream_stages(plan, static_cast<int>(shape_.count) * per_update_)),
        predicts_(plan.schedule.weight_policy == plan::WeightPolicy::predict) {
    for (DelayedStage& stage : stages_) {
      stage.versions = {model_.initial_weights()};
      add_predictions(stage, options.learning_rate);
    }
  }

  Trained train() {
    Trained result;
    for (int t = 0; t < shape_.count; ++t) {
      double loss = 0;
      for (int j = t * per_update_; j < (t + 1) * per_update_; ++j)
        loss += gradient(j).loss * static_cast<double>(samples(j).size()) / shape_.size(t);
      result.losses.push_back(loss);
    }
    LayerTensors newest = model_.initial_weights();
    for (std::size_t s = 0; s < stages_.size(); ++s) copy_stage(s, programs_[s].rounds.size(), newest);
    result.tensors = model_.named(newest, model_.initial_buffers());
    return result;
  }

 private:
  enum class For { whole, forward, backward };

  void copy_stage(std::size_t s, std::size_t number, LayerTensors& weights, For what = For::whole) {
    const LayerTensors& newest = version(s, number);
    const LayerTensors& from = !predicts_ || what == For::whole ? newest
                               : what == For::forward           ? stages_[s].in_forward[number]
                                                                : stages_[s].in_backward[number];
    for (auto l = static_cast<std::size_t>(stages_[s].first); l < static_cast<std::size_t>(stages_[s].last);
         ++l)
      weights[l] = from[l];
  }

  const LayerTensors& version(std::size_t s, std::size_t number) {
    DelayedStage& stage = stages_[s];
    while (stage.versions.size() <= number) {
      const std::vector<int>& round = programs_[s].rounds[stage.versions.size() - 1];
      std::size_t all = 0;
      for (const int j : round) all += samples(j).size();
      std::vector<at::Tensor> sum;
      for (const int j : round) {
        std::vector<at::Tensor> part = flat(gradient(j).weights, stage.first, stage.last);
        for (at::Tensor& tensor : part)
          tensor = tensor.mul(static_cast<double>(samples(j).size()) / static_cast<double>(all));
        add(sum, part);
      }
      LayerTensors next = clone(stage.versions.back());
      stage.optimizer->step(flat(next, stage.first, stage.last), sum, options_.learning_rate);
      stage.versions.push_back(std::move(next));
      add_predictions(stage, options_.learning_rate);
    }
    return stage.versions[number];
  }

  const Gradient& gradient(int j) {
    const auto known = gradients_.find(j);
    if (known != gradients_.end()) return known->second;
    LayerTensors used = model_.initial_weights(), later = used;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      copy_stage(s, static_cast<std::size_t>(programs_[s].version_of.at(j)), used, For::forward);
      if (predicts_)
        copy_stage(s, static_cast<std::size_t>(programs_[s].updates_before.at(j)), later, For::backward);
    }
    const model::RandomKey key{options_.seed, j / per_update_, j % per_update_};
    Gradient found = model_.gradient(used, samples(j), 1.0, key, predicts_ ? &later : nullptr);
    return gradients_.emplace(j, std::move(found)).first->second;
  }

  std::span<const std::int64_t> samples(int j) const {
    const int t = j / per_update_;
    const auto m = static_cast<std::size_t>(j % per_update_);
    const std::vector<int> offsets = offsets_of(shape_.size(t), per_update_);
    return std::span(order_).subspan(static_cast<std::size_t>(shape_.first(t) + offsets[m]),
                                     static_cast<std::size_t>(offsets[m + 1] - offsets[m]));
  }

  const run::RunOptions& options_;
  WholeModel model_;
  run::EpochShape shape_;
  std::vector<std::int64_t> order_;
  std::vector<DelayedStage> stages_;
  int per_update_;  ///< micro-batches
  std::vector<StreamStage> programs_;
  bool predicts_;
  std::map<int, Gradient> gradients_;
};

// The version of stage s that micro-batch j runs on, counted from the beginning of
// the epoch; M micro-batches make an update, K stages in a straight pipeline keep K - s micro-batches in
// flight.
int version_of(plan::WeightPolicy policy, int j, int s, int stages, int per_update) {
  const int warm = stages - 1 - s;
  switch (policy) {
    case plan::WeightPolicy::stash: return std::max(0, j - warm);  // the newest at its forward
    case plan::WeightPolicy::predict:  // the newest at the forward of its mini-batch's first
      return std::max(0, j / per_update * per_update - warm) / per_update;
    case plan::WeightPolicy::vertical_sync: return std::max(0, j - (stages - 1));
    case plan::WeightPolicy::two_buffered: return std::max(0, j / per_update - 1);
    case plan::WeightPolicy::macrobatch:
      return std::max(0, j - warm) / per_update;  // those done at its forward
    default: throw Error(ErrorKind::internal, "no recursion for this policy");
  }
}

}  // namespace

Trained train_versions(const plan::Plan& plan, const run::RunOptions& options) {
  at::set_num_threads(1);
  WholeModel model(plan, options);
  Trained result;
  std::vector<DelayedStage> stages = delayed_stages(plan, options);
  const run::EpochShape shape = shape_of(plan, options, model.samples());
  const int per_update = plan.training.micro_batches, count = static_cast<int>(stages.size());
  const bool predicts = plan.schedule.weight_policy == plan::WeightPolicy::predict;
  LayerTensors newest = model.initial_weights();
  for (int epoch = 0; epoch < options.epochs.value_or(1); ++epoch) {
    for (DelayedStage& stage : stages) {
      stage.versions = {newest};
      add_predictions(stage, options.learning_rate);
    }
    const auto order = run::epoch_order(model.samples(), options.seed, epoch, options.shuffle);
    for (int t = 0; t < shape.count; ++t) {
      const int size = shape.size(t);
      const std::vector<int> offsets = offsets_of(size, per_update);
      double loss = 0;
      model::Gradients sums = model.no_gradients();
      for (int m = 0; m < per_update; ++m) {
        LayerTensors used(newest.size()), later(newest.size());
        for (int s = 0; s < count; ++s) {
          const DelayedStage& stage = stages[static_cast<std::size_t>(s)];
          const int version = version_of(plan.schedule.weight_policy, t * per_update + m, s, count, per_update);
          const auto& versions = predicts ? stage.in_forward : stage.versions;
          for (auto l = static_cast<std::size_t>(stage.first); l < static_cast<std::size_t>(stage.last); ++l) {
            used[l] = versions.at(static_cast<std::size_t>(version))[l];
            later[l] = stage.in_backward.back()[l];
          }
        }
        const int begin = offsets[static_cast<std::size_t>(m)], end = offsets[static_cast<std::size_t>(m) + 1];
        const double weight = static_cast<double>(end - begin) / size;
        const auto samples = std::span(order).subspan(static_cast<std::size_t>(shape.first(t) + begin),
                                                      static_cast<std::size_t>(end - begin));
        const Gradient part =
            model.add_gradient(sums, used, samples, weight, {options.seed, epoch * shape.count + t, m},
                               predicts ? &later : nullptr);
        loss += part.loss * (end - begin) / size;
      }
      const LayerTensors gradients = summed(sums, newest);
      for (DelayedStage& stage : stages) stage.round = flat(gradients, stage.first, stage.last);
      result.losses.push_back(loss);
      for (DelayedStage& stage : stages) delayed_update(stage, options.learning_rate);
    }
    for (const DelayedStage& stage : stages) {
      for (int l = stage.first; l < stage.last; ++l)
        newest[static_cast<std::size_t>(l)] = stage.versions.back()[static_cast<std::size_t>(l)];
    }
  }
  result.tensors = model.named(newest, model.initial_buffers());
  return result;
}

Trained train_stream(const plan::Plan& plan, const run::RunOptions& options) {
  at::set_num_threads(1);
  return StreamRecursion(plan, options).train();
}

}  // namespace pp::test
