// Layers as pure functions: (weights, inputs, context) -> outputs. One per row of pp::op_table(), bound by name
// to a layer's attributes; nothing hides state, so one layer can run with any version of its weights, be run
// again, and gives the same result in whatever stage it lands.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::model {

enum class Mode { training, evaluation };

/// What every random draw of one pass derives from; with the model-wide layer index it keys the generator, so
/// that masks do not depend on the plan.
struct RandomKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
};

/// Statistics of one batch norm layer over one micro-batch, for the deferred running ones: as its kernel leaves
/// them for backward, so that they cost nothing until they are committed.
struct BatchStatistics {
  int layer = 0;                 ///< model-wide index
  int buffer = 0;                ///< of the layer's buffers: its running mean
  std::int64_t count = 0;        ///< values per channel
  at::Tensor mean;               ///< [channels]
  at::Tensor inverse_deviation;  ///< [channels] 1/sqrt(biased variance + eps)
  int micro_batch = 0;           ///< set by who keeps those of several
};

/// The few tensors of one layer, without memory of their own.
using Tensors = c10::SmallVector<at::Tensor, 6>;
using TensorSpan = std::span<const at::Tensor>;

/// A part of longer sequences, for models that compute each position from itself and, by attention, earlier
/// ones.
struct Piece {
  std::vector<std::int64_t> first;  ///< per sample: the position of the first one here
  std::int64_t capacity = 0;        ///< positions that a sequence may have
};
/// What attention keeps of the pieces so far, of one layer and the samples of a micro-batch.
struct LayerCache {
  at::Tensor keys, values;  ///< [n, groups, capacity, width]; undefined before the first piece
};

struct LayerContext {
  Mode mode = Mode::training;
  RandomKey key;
  int layer = 0;  ///< model-wide index
  at::Generator* generator =
      nullptr;  ///< private to the worker; reseeded from (key, layer) by the layer's first draw
  /// In the order of the op's buffers; batch norm reads them in evaluation only. May be missing in training.
  std::span<const at::Tensor> buffers;
  std::vector<BatchStatistics>* statistics =
      nullptr;                        ///< where batch norm leaves its statistics in training; null: dropped
  bool seeded = false;                ///< the layer has drawn before: further draws continue the stream
  at::ScalarType dtype = at::kFloat;  ///< of the run's floating tensors
  Tensors* saved = nullptr;           ///< what the op's written backward needs goes here; null: nothing is kept
  const Piece* piece = nullptr;       ///< null: sequences are whole
  LayerCache* cache = nullptr;        ///< with `piece`
  // Within a graph:
  int first_buffer = 0;                       ///< number of buffers[0] among the layer's
  std::int64_t samples = 0;                   ///< of the micro-batch
  std::optional<at::Device> device = {};      ///< where the layer runs
  std::span<const double> label_shares = {};  ///< of a loss's graph (PassContext)
};

/// `weights` in the order of the op's parameters. Inputs are [n, shape...]. Outputs may share storage with
/// inputs (flatten), and be written over an input that only `inputs` refers to (is_sole_owner(); never while
/// autograd records). Several threads may call one at once.
using Forward = std::function<Tensors(TensorSpan inputs, TensorSpan weights, LayerContext& context)>;

/// When a split backward computes the weight gradient. `with_input`: it falls out of the input gradient, so
/// deferring it would repeat the work (of an LSTM: the whole walk through time) and hold the saved tensors.
enum class WeightGradient { separate, with_input };

class WeightSums;

/// A backward written out, in place of autograd's walk over what forward has recorded. Only for ops of one
/// output, whose forward puts what they need into LayerContext::saved. Either the first two, or `both`.
struct WrittenBackward {
  /// One gradient per input, or one that is that of all. May leave in `saved` what `weights` needs instead.
  std::function<Tensors(Tensors& saved, TensorSpan weights, const at::Tensor& gradient)> inputs = {};
  /// Adds the gradients of the weights; null for an op without parameters.
  std::function<void(Tensors& saved, TensorSpan weights, const at::Tensor& gradient, WeightSums& sums)>
      weights = {};
  /// The gradients of the inputs, then of the weights: where they fall out of the same sums.
  std::function<Tensors(TensorSpan saved, TensorSpan weights, const at::Tensor& gradient)> both = {};
  /// Whether it can be used with such inputs; null: with any.
  std::function<bool(TensorSpan inputs)> applies = {};
};

/// What runs a layer: its op with the attributes read. Made once per segment; whatever else can run a layer
/// becomes one of these.
struct BoundLayer {
  Forward forward;
  WeightGradient weight_gradient = WeightGradient::separate;  ///< of autograd's backward; `both`: with_input
  std::optional<WrittenBackward> backward = {};               ///< none: autograd's
  bool deterministic = true;                                  ///< on a GPU: LibTorch has such kernels
  /// Adds the tensors that the layer holds from pass to pass beside its weights and buffers; null: none.
  std::function<void(std::vector<at::Tensor>& tensors)> held = {};
};
/// `attributes` are complete. Throws pp::Error (data) for an op that can be planned, but not run.
BoundLayer bind_layer(std::string_view op, const Attributes& attributes);
/// Of any op. Throws pp::Error (data) also for a node of a graph and for a call that LibTorch does not take.
BoundLayer bind_layer(const ResolvedModel& model, int layer);

/// The mean loss of a micro-batch, a scalar, as a layer with the inputs prediction and target. Throws
/// pp::Error (internal) when there is none of this name.
BoundLayer bind_loss(std::string_view loss, const Attributes& attributes);
/// The model's, which it has.
BoundLayer bind_loss(const ResolvedModel& model);
std::vector<std::string_view> runnable_losses();

/// splitmix64 over (seed, step, micro-batch, layer).
std::uint64_t mix(const RandomKey& key, int layer);

at::ScalarType scalar_type(DType dtype);
/// Of a tensor with `dims` dimensions: channels_last is for four.
at::MemoryFormat memory_format(MemoryFormat format, std::int64_t dims);

}  // namespace pp::model
