// The whole model as one segment on one thread, and what recursions by the book do with its gradients.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "libprofile/model/ops.h"
#include "libprofile/model/optimizer.h"
#include "libprofile/model/segment.h"
#include "librun/data/dataset.h"
#include "librun/data/order.h"
#include "tests/librun/reference.h"

namespace pp::test {

using LayerTensors = std::vector<std::vector<at::Tensor>>;  // per layer

struct Gradient {
  double loss = 0;
  LayerTensors weights;
  std::vector<pp::model::BatchStatistics> statistics;
};

class WholeModel {
 public:
  /// Both must outlive it.
  WholeModel(const pp::plan::Plan& plan, const pp::run::RunOptions& options);

  const pp::ResolvedModel& resolved() const { return resolved_; }
  std::int64_t samples() const { return data_.samples(); }
  LayerTensors initial_weights() const;
  LayerTensors initial_buffers() const;
  /// Gradient of weight * loss at the given weights; mean loss unweighted.
  /// `in_backward`: weights that the backward finds in the places of the forward's; null: the same.
  Gradient gradient(const LayerTensors& at_weights, std::span<const std::int64_t> samples, double weight,
                    pp::model::RandomKey key, const LayerTensors* in_backward = nullptr);
  /// The same, added to `sums` as kernels add; the result has no weights.
  Gradient add_gradient(pp::model::Gradients& sums, const LayerTensors& at_weights,
                        std::span<const std::int64_t> samples, double weight, pp::model::RandomKey key,
                        const LayerTensors* in_backward = nullptr);
  pp::model::Gradients no_gradients() const { return segment_.empty_gradients(); }
  /// By one autograd graph over the model, without a segment: equal to rounding.
  Gradient plain_gradient(const LayerTensors& at_weights, std::span<const std::int64_t> samples, double weight,
                          pp::model::RandomKey key);
  NamedTensors named(const LayerTensors& weights, const LayerTensors& buffers) const;

 private:
  const pp::plan::Plan& plan_;
  const pp::run::RunOptions& options_;
  pp::ResolvedModel resolved_;
  pp::model::Segment segment_;
  pp::run::MemoryDataset data_;
  at::Generator generator_;
};

std::unique_ptr<pp::model::Optimizer> optimizer_of(const pp::plan::Plan& plan,
                                                   const pp::run::RunOptions& options);
pp::run::EpochShape shape_of(const pp::plan::Plan& plan, const pp::run::RunOptions& options,
                             std::int64_t samples);
/// First samples of the micro-batches of a mini-batch, and its end: the first N mod M have one more.
std::vector<int> offsets_of(int mini_batch, int micro_batches);

/// Those of layers [first, last); last < 0: of all from there.
std::vector<at::Tensor> flat(const LayerTensors& layers, int first = 0, int last = -1);
LayerTensors clone(const LayerTensors& layers);
/// The sums, zero where the loss sees nothing of a weight.
LayerTensors summed(const pp::model::Gradients& sums, const LayerTensors& weights);
void add(std::vector<at::Tensor>& sum, const std::vector<at::Tensor>& part);

}  // namespace pp::test
