// The segment runner: a set of layers that runs together, forward and backward, full or split into input and
// weight gradient. Profiler and runtime run this same code.
//
// Every layer has an autograd graph of its own, cut off at its inputs and outputs, wherever the stage
// boundaries are: the same kernels run on the same bytes in every partition (bit-equality), splitting backward
// costs nothing, and a layer keeps exactly what it saves, because the cuts hold graph edges and
// not tensors.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/kernels/kernels.h"
#include "libprofile/model/ops.h"

namespace pp::model {

namespace detail {
struct BoundSegment;
struct PassState;
class PassStates;
}  // namespace detail

/// One version of a segment's weights: per layer of the segment its parameters, leaves that require gradients
/// where they are trained.
/// Layers that share parameters hold the same leaves. Alive as long as a pass in flight holds it: the reference
/// count is the version count.
struct Weights {
  std::vector<std::vector<at::Tensor>> layers;
  int version = 0;

  /// None for the loss, which follows the last layer.
  TensorSpan of(int position) const {
    const auto p = static_cast<std::size_t>(position);
    return p < layers.size() ? TensorSpan(layers[p]) : TensorSpan();
  }
};

/// Accumulated gradients, one dense buffer per use of a parameter, same indices as Weights::layers. Undefined
/// until the first addition.
struct Gradients {
  std::vector<std::vector<at::Tensor>> layers;
  /// Where a sum is put at its first addition, whatever was there before; empty: in tensors of their own.
  std::vector<std::vector<at::Tensor>> places;
};

/// One micro-batch in flight. Movable; frees what it holds as soon as the backward of each layer has run.
class Pass {
 public:
  Pass();
  Pass(Pass&&) noexcept;
  Pass& operator=(Pass&&) noexcept;
  ~Pass();

  Tensors outputs;  ///< of Segment::outputs(): detached, dense; the caller may move them away
  at::Tensor loss;  ///< scalar, mean over the micro-batch, unweighted; undefined without a loss
  std::vector<BatchStatistics> statistics;  ///< training batch norm layers, in layer order
  /// Where a caller puts one, backward starts from it in place of a loss weight: a scalar like the loss.
  at::Tensor loss_gradient;

 private:
  friend class Segment;
  std::unique_ptr<detail::PassState> state_;
};

/// Whether a training forward can be followed by backward. `none`: for a forward that will be run again before
/// its backward (recompute): same numbers, nothing is kept.
enum class Record { graph, none };

struct PassContext {
  Mode mode = Mode::training;
  Record record = Record::graph;  ///< evaluation records nothing in any case
  RandomKey key;
  at::Generator* generator =
      nullptr;  ///< of the calling thread; recomputed layers draw from it in backward too
  /// Per layer of the segment; they outlive the pass. In training batch norm does not read its own.
  std::span<const std::vector<at::Tensor>> buffers;
  /// Forwards run under LibTorch's autocast to this type: products in it, sums that need it in float32. Weights
  /// and their gradients keep their type.
  std::optional<at::ScalarType> autocast = std::nullopt;
  at::ScalarType dtype = at::kFloat;  ///< of the run's floating tensors
  /// In evaluation of a model that runs by pieces (runs_by_pieces()): inputs are a piece of longer sequences.
  /// Null: they are whole.
  const Piece* piece = nullptr;
  /// Per node of the loss's graph: the factor of a mean over labels, 0 where no label of the micro-batch
  /// counts. Empty: all are 1.
  std::vector<double> label_shares = {};
  std::span<LayerCache> caches =
      {};  ///< with `piece`: per layer of the segment, for the same samples every time
};

/// Told before and after each layer's part of an operation; for the profiler. A layer without work in an
/// operation is left out: all layers have a forward, only those with trained parameters a weight gradient.
class LayerObserver {
 public:
  enum class Phase { forward, backward, input_gradient, weight_gradient };
  virtual ~LayerObserver() = default;
  /// `position`: index within the segment; layer_count() for the loss.
  virtual void begin(int position, Phase phase) = 0;
  /// Between begin and end of a forward: what the layer hands on.
  virtual void made(int /*position*/, TensorSpan /*outputs*/) {}
  virtual void end(int position, Phase phase) = 0;
};

/// Immutable but for use(): several threads may run passes of one segment at once, each with its own generator.
/// A layer that fails throws pp::Error (run), OutOfMemory (errors.h) when memory ran out; both name the layer.
class Segment {
 public:
  /// `layers`: model-wide indices, ascending. `with_loss`: the loss runs after the last layer; its sources must
  /// be computed or received here. `recompute`: the layers that keep only their inputs for backward, which runs
  /// their forward again, one layer at a time (bit-equal; their statistics count once). `format`: of weights,
  /// and of all that passes between layers; inputs are brought to it. The model must outlive the segment.
  /// Throws pp::Error (internal), and with the layer's name for one that cannot be run.
  Segment(const ResolvedModel& model, std::vector<int> layers, bool with_loss,
          const std::vector<int>& recompute = {}, MemoryFormat format = MemoryFormat::contiguous);

  const std::vector<int>& layers() const;
  int layer_count() const { return static_cast<int>(layers().size()); }
  bool has_loss() const;
  MemoryFormat format() const;
  /// Distinct tensors read from outside: other segments' layer outputs (ascending layer, output), then model
  /// inputs, then targets.
  const std::vector<TensorSource>& inputs() const;
  /// Layer outputs of this segment that other layers, the model's outputs or a loss elsewhere use outside of
  /// it; ascending.
  const std::vector<TensorSource>& outputs() const;
  /// From here on its passes take these kernels. Not while a pass runs.
  void use(std::shared_ptr<const Kernels> kernels) { kernels_ = std::move(kernels); }
  /// True for the inputs whose gradient goes back to their producer (ResolvedLayer::input_gradient).
  bool input_needs_gradient(int input) const;

  /// Leaves for the first version, from the seed: the same values on every device.
  std::shared_ptr<Weights> initial_weights(std::uint64_t seed, DType dtype,
                                           const at::Device& device = at::kCPU) const;
  std::vector<std::vector<at::Tensor>> initial_buffers(DType dtype, const at::Device& device = at::kCPU) const;
  Gradients empty_gradients() const;

  /// Training with a graph per layer; evaluation without any. `inputs` as inputs(), read-only, dense, may be
  /// moved from by the caller afterwards.
  Pass forward(std::shared_ptr<const Weights> weights, TensorSpan inputs, const PassContext& context,
               LayerObserver* observer = nullptr) const;
  /// The same of inputs that are given away: each goes with its last reader here, unless a layer keeps it.
  Pass forward(std::shared_ptr<const Weights> weights, Tensors&& inputs, const PassContext& context,
               LayerObserver* observer = nullptr) const;

  /// `output_gradients[k]`: the gradients that arrived for outputs()[k], in the order to be added (descending
  /// consumer stage); empty when none. They are moved from. The loss gradient starts from `loss_weight`
  /// (n_m/N); with 0 no gradient leaves the loss, also where it is not a number. Adds weight gradients to
  /// `gradients`. Returns one gradient per input, undefined where input_needs_gradient() is false. A tensor
  /// with several consumers folds their gradients in descending layer order, what arrived first. What is
  /// returned may share storage with what arrived: it is read-only for both. Ends the pass: its weights and
  /// graphs are released layer by layer.
  Tensors backward(Pass& pass, std::span<Tensors> output_gradients, double loss_weight, Gradients& gradients,
                   LayerObserver* observer = nullptr) const;
  /// The halves of backward; together bit-equal to it. Between them the pass keeps, of the layers with
  /// parameters, output gradients and saved tensors; of norms and LSTMs, whose weight gradients fall out of the
  /// input gradient, only these.
  Tensors input_gradient(Pass& pass, std::span<Tensors> output_gradients, double loss_weight,
                         LayerObserver* observer = nullptr) const;
  void weight_gradient(Pass& pass, Gradients& gradients, LayerObserver* observer = nullptr) const;
  /// The tensors that layers hold from pass to pass beside weights and buffers: constants of their calls, as
  /// far as a pass has made them.
  std::vector<at::Tensor> held() const;
  /// Takes back the memory of Pass::statistics for a later pass. Optional.
  void reuse(std::vector<BatchStatistics> statistics) const;

 private:
  const ResolvedModel* model_;
  std::shared_ptr<const detail::BoundSegment> bound_;
  std::shared_ptr<detail::PassStates> states_;
  std::shared_ptr<const Kernels> kernels_;  ///< null: LibTorch's
};

/// What a batch norm has seen of a mini-batch.
struct NormStatistics {
  std::span<const BatchStatistics> in_order;  ///< of micro-batches
  BatchNorm norm;
  std::span<at::Tensor> buffers;  ///< running_mean, running_var [channels]
};

/// Adds them to running mean and unbiased running variance with the norm's momentum. One norm's result does not
/// depend on which others there are.
void commit_statistics(std::span<const NormStatistics> norms);

}  // namespace pp::model
