// The ops that are more than a function of LibTorch (OpRow::aten): what binds the forward of each to a layer's
// attributes, and how its parameters start, a row each in the file of its group. Shapes are written [n, ...]
// with n the samples of the micro-batch.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/alias.h>
#include <c10/core/GradMode.h>

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/gradient_sums.h"
#include "libprofile/model/ops.h"

namespace pp::model::ops {

/// Binds a forward to a layer's attributes. Reads all that it needs of them: they may be gone when it runs.
using Bind = Forward(const Attributes& attributes);
/// In place of autograd's backward, of ops that save what it needs.
using BindBackward = std::optional<WrittenBackward>(const Attributes& attributes);

/// What the op's written backward needs, when it will run.
inline void save(LayerContext& context, Tensors tensors) {
  if (context.saved != nullptr) *context.saved = std::move(tensors);
}

/// Whether the result may be written over the input `x`: it has no other reader. So a chain of operations
/// without parameters works in the memory of the layer in front of it. Not for weights, and not for gradients:
/// one that another stage has sent is read-only, and what backward needs would depend on the cuts.
inline bool may_overwrite(const at::Tensor& x) { return !at::GradMode::is_enabled() && is_sole_owner(x); }

/// The forward of an op with one input and no parameters: input -> output.
template <class Function>
Forward unary(Function function) {
  return [function](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
    return {function(inputs[0])};
  };
}

/// `x` as a single reader of it. An op that reads an input several times reads this instead, so that autograd
/// adds up what the op gives back before it adds other layers' gradients, in one graph as in segments.
inline at::Tensor once(const at::Tensor& x) { return x.alias(); }

/// Zeroes each element with `probability` < 1 and scales the rest by 1/(1-probability). The layer's first draw
/// reseeds the context's generator from (key, layer), further ones continue. Keeps one byte per element for
/// backward.
at::Tensor drop(const at::Tensor& x, double probability, LayerContext& context);
/// With a mask of these sizes, spread over `x` where they are 1.
at::Tensor drop(const at::Tensor& x, double probability, LayerContext& context, at::IntArrayRef mask);

/// The activation of a gate, and the gradient of its input x from that of its result.
at::Tensor opened(GateActivation gate, const at::Tensor& x);
at::Tensor opened_backward(GateActivation gate, const at::Tensor& gradient, const at::Tensor& x);

/// A parameter to be filled.
struct Start {
  std::span<const ParameterSpec> parameters;  ///< all of the layer's
  std::size_t index = 0;                      ///< of this one
  const Attributes& attributes;               ///< complete, of the layer; empty of a call
  const at::Generator& generator;
};
/// Fills a float32 tensor of the parameter's shape.
using Initialise = void (*)(at::Tensor& tensor, const Start& start);
/// U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weight and bias; fan_in is what one output of the first parameter
/// reads. With an attribute `std` above 0: N(0, std), and biases 0.
void initialise_by_fan_in(at::Tensor& tensor, const Start& start);
/// N(0, 1), or N(0, std) with that attribute above 0
void initialise_normal(at::Tensor& tensor, const Start& start);
/// 0
void initialise_zero(at::Tensor& tensor, const Start& start);
/// weight 1, less what the layer adds to it, bias 0
void initialise_norm(at::Tensor& tensor, const Start& start);
/// Weights of several norms 1, sinks N(0, sinks_std)
void initialise_norm_weights(at::Tensor& tensor, const Start& start);
/// Xavier-uniform input projection, output projection by fan-in, biases 0.
void initialise_attention(at::Tensor& tensor, const Start& start);

/// Projections by fan-in, the vector like one more, its scale 1/sqrt(num_units), the bias 0.
void initialise_additive_attention(at::Tensor& tensor, const Start& start);
/// Each matrix, and a bias behind it, as a linear layer's; with `std` the router's bias is N(0, std) too.
void initialise_experts(at::Tensor& tensor, const Start& start);
/// U(-1/sqrt(hidden_size), 1/sqrt(hidden_size))
void initialise_lstm(at::Tensor& tensor, const Start& start);

struct Row {
  std::string_view name;
  Bind* bind;
  Initialise initialise = nullptr;  ///< null: no parameters
  BindBackward* backward = nullptr;
  /// In place of `bind` and `backward`, of an op whose halves share what it holds from pass to pass.
  BoundLayer (*bind_whole)(const Attributes& attributes) = nullptr;
};
/// The groups of rows, by the names of core's.
std::span<const Row> attention_rows(), convolution_rows(), dropout_rows(), elementwise_rows(), embedding_rows(),
    expert_rows(), grouped_query_attention_rows(), linear_rows(), normalisation_rows(), recurrent_rows(),
    shape_rows();
/// Null: there is none of this name.
const Row* find(std::string_view name);

}  // namespace pp::model::ops
