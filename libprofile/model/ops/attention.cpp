#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include <array>
#include <cmath>
#include <limits>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"
#include "libprofile/model/ops/relative_position.h"

namespace pp::model::ops {
namespace {

/// in_proj_weight [3d, d], in_proj_bias [3d], out_proj.weight [d, d], out_proj.bias [d], the biases only with
/// the attribute, else undefined.
struct Projections {
  at::Tensor in, in_bias, out, out_bias;
};

/// What the attributes of both products of attention say.
struct Settings {
  std::int64_t heads;
  bool bias, scaled;
  double dropout;

  explicit Settings(const Attributes& attributes)
      : heads(integer(attributes, "num_heads")),
        bias(boolean(attributes, "bias")),
        scaled(boolean(attributes, "scaled")),
        dropout(number(attributes, "dropout")) {}
};

Projections projections(const Settings& settings, TensorSpan weights) {
  if (!settings.bias) return {weights[0], {}, weights[1], {}};
  return {weights[0], weights[1], weights[2], weights[3]};
}

/// [n, l, k d] -> [k, n, heads, l, d / heads]
at::Tensor split_heads(const at::Tensor& projected, std::int64_t k, std::int64_t heads) {
  const std::int64_t n = projected.size(0), l = projected.size(1);
  return projected.view({n, l, k, heads, projected.size(2) / (k * heads)}).permute({2, 0, 3, 1, 4});
}

/// True above the diagonal: what a position must not see. [s, s]
at::Tensor future(std::int64_t length, const at::Tensor& like) {
  return at::ones({length, length}, like.options().dtype(at::kBool).requires_grad(false)).triu(1);
}

/// Query [n, heads, l, width], key [n, heads, k, width] -> [n, heads, l, k]
at::Tensor scores_of(const Settings& settings, const at::Tensor& query, const at::Tensor& key) {
  const double factor = settings.scaled ? 1.0 / std::sqrt(static_cast<double>(query.size(-1))) : 1.0;
  return at::matmul(query.mul(factor), key.transpose(-2, -1));
}

/// Scores [n, heads, l, k], value [n, heads, k, width] -> [n, l, heads width]
at::Tensor mix_values(const Settings& settings, const at::Tensor& scores, const at::Tensor& value,
                      LayerContext& context) {
  at::Tensor shares = at::softmax(scores, -1);
  if (context.mode == Mode::training && settings.dropout > 0.0)
    shares = drop(shares, settings.dropout, context);
  return at::matmul(shares, value).transpose(1, 2).flatten(2);
}

// Self-attention as torch.nn.MultiheadAttention with batch_first: [n, s, d], with a bias by relative position
// also [n, buckets, heads] -> [n, s, d]. Written out, so that dropout can draw from our generator.
Forward multi_head_attention(const Attributes& attributes) {
  return [settings = Settings(attributes), causal = boolean(attributes, "causal"),
          max_distance = integer(attributes, "max_distance")](TensorSpan inputs, TensorSpan weights,
                                                              LayerContext& context) -> Tensors {
    const at::Tensor& x = inputs[0];
    const Projections projection = projections(settings, weights);
    const at::Tensor projected =
        split_heads(at::linear(x, projection.in, projection.in_bias), 3, settings.heads);
    at::Tensor scores =
        scores_of(settings, projected.select(0, 0), projected.select(0, 1));  // [n, heads, s, s]
    if (inputs.size() > 1) {
      const Sight sight = causal ? Sight::backward : Sight::both_sides;
      scores = scores.add(position_bias(inputs[1], x.size(1), max_distance, sight));
    }
    if (causal) scores = scores.masked_fill(future(x.size(1), x), -std::numeric_limits<double>::infinity());
    const at::Tensor mixed = mix_values(settings, scores, projected.select(0, 2), context);
    return {at::linear(mixed, projection.out, projection.out_bias)};
  };
}

// As torch.nn.MultiheadAttention with batch_first, query from the first input, key and value from the second:
// [n, l, d], [n, k, d] -> [n, l, d].
Forward cross_attention(const Attributes& attributes) {
  return [settings = Settings(attributes)](TensorSpan inputs, TensorSpan weights,
                                           LayerContext& context) -> Tensors {
    const at::Tensor &x = inputs[0], &memory = inputs[1];
    const Projections projection = projections(settings, weights);
    const std::int64_t d = x.size(2), heads = settings.heads;
    const auto rows = [](const at::Tensor& all, std::int64_t first, std::int64_t count) {
      return all.defined() ? all.narrow(0, first, count) : all;
    };
    const at::Tensor query =
        split_heads(at::linear(x, rows(projection.in, 0, d), rows(projection.in_bias, 0, d)), 1, heads);
    const at::Tensor projected = split_heads(
        at::linear(memory, rows(projection.in, d, 2 * d), rows(projection.in_bias, d, 2 * d)), 2, heads);
    const at::Tensor scores =
        scores_of(settings, query.select(0, 0), projected.select(0, 0));  // [n, heads, l, k]
    const at::Tensor mixed = mix_values(settings, scores, projected.select(0, 1), context);
    return {at::linear(mixed, projection.out, projection.out_bias)};
  };
}

// Queries [n, l, d], keys [n, k, e] -> context [n, l, e]; linear_q.weight [u, d], linear_k.weight [u, e],
// linear_att and normalize_bias [u], normalize_scalar [1]. Bahdanau et al., Neural machine translation by
// jointly learning to align and translate, 2015, with the vector normalised as weights are by Salimans and
// Kingma, 2016.
Forward additive_attention(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    const at::Tensor keys = once(inputs[1]);
    const at::Tensor query = at::linear(inputs[0], weights[0]).unsqueeze(2);  // [n, l, 1, u]
    const at::Tensor key = at::linear(keys, weights[1]).unsqueeze(1);         // [n, 1, k, u]
    const at::Tensor hidden = at::tanh(query.add(key.add(weights[4])));       // [n, l, k, u]
    const at::Tensor vector = weights[2].mul(weights[3].div(weights[2].norm()));
    const at::Tensor shares = at::softmax(at::matmul(hidden, vector), -1);  // [n, l, k]
    return {at::matmul(shares, keys)};
  };
}

// Queries [n, ..., l, d], keys [n, ..., k, d], values [n, ..., k, e] -> [n, ..., l, e]. LibTorch's own; with
// dropout written out, which draws from our generator.
Forward scaled_dot_product_attention(const Attributes& attributes) {
  const bool causal = boolean(attributes, "causal");
  const double dropout = number(attributes, "dropout");
  if (dropout == 0.0) {
    return [causal](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
      return {at::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, 0.0, causal)};
    };
  }
  return [causal, dropout](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& context) -> Tensors {
    const at::Tensor &query = inputs[0], &key = inputs[1];
    const double factor = 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
    at::Tensor scores = at::matmul(query.mul(factor), key.transpose(-2, -1));  // [n, ..., l, k]
    if (causal) {
      const at::Tensor future =
          at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool).requires_grad(false))
              .triu(1);
      scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
    }
    at::Tensor shares = at::softmax(scores, -1);
    if (context.mode == Mode::training) shares = drop(shares, dropout, context);
    return {at::matmul(shares, inputs[2])};
  };
}

constexpr std::array kRows{
    Row{"multi_head_attention", multi_head_attention, initialise_attention},
    Row{"cross_attention", cross_attention, initialise_attention},
    Row{"additive_attention", additive_attention, initialise_additive_attention},
    Row{"scaled_dot_product_attention", scaled_dot_product_attention},
};

}  // namespace

std::span<const Row> attention_rows() { return kRows; }

}  // namespace pp::model::ops
