#include "libprofile/model/ops/attention.h"

#include <ATen/core/grad_mode.h>
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
#include "libprofile/model/ops/fused_attention.h"

namespace pp::model::ops {

AttentionSettings::AttentionSettings(const Attributes& attributes)
    : heads(integer(attributes, "num_heads")),
      bias(boolean(attributes, "bias")),
      scaled(boolean(attributes, "scaled")),
      dropout(number(attributes, "dropout")) {}

Projections projections(const AttentionSettings& settings, TensorSpan weights) {
  if (!settings.bias) return {weights[0], {}, weights[1], {}};
  return {weights[0], weights[1], weights[2], weights[3]};
}

at::Tensor split_heads(const at::Tensor& projected, std::int64_t k, std::int64_t heads) {
  const std::int64_t n = projected.size(0), l = projected.size(1);
  return projected.view({n, l, k, heads, projected.size(2) / (k * heads)}).permute({2, 0, 3, 1, 4});
}

at::Tensor joined_heads(const at::Tensor& mixed) { return mixed.transpose(1, 2).flatten(2); }

double attention_factor(const AttentionSettings& settings, const at::Tensor& query) {
  return settings.scaled ? 1.0 / std::sqrt(static_cast<double>(query.size(-1))) : 1.0;
}

namespace {

/// Where a query stands in front of the key: [l, k].
at::Tensor future_of(const at::Tensor& query, const at::Tensor& key) {
  const at::TensorOptions flags = query.options().dtype(at::kBool).requires_grad(false);
  return at::ones({query.size(-2), key.size(-2)}, flags).triu(1);
}

constexpr double kUnseen = -std::numeric_limits<double>::infinity();  // the score of what is masked

/// [n, ..., l, width], twice [n, ..., k, width] -> as the query. All scores at once.
at::Tensor attend_written_out(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              double factor, const at::Tensor& bias, bool causal, double dropout,
                              LayerContext& context) {
  at::Tensor scores = at::matmul(query.mul(factor), key.transpose(-2, -1));  // [n, ..., l, k]
  if (bias.defined()) scores = scores.add(bias);
  if (causal) scores = scores.masked_fill(future_of(query, key), kUnseen);
  at::Tensor shares = at::softmax(scores, -1);
  if (context.mode == Mode::training && dropout > 0.0) shares = drop(shares, dropout, context);
  return at::matmul(shares, value);
}

}  // namespace

at::Tensor attend(const AttentionSettings& settings, const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value, const at::Tensor& bias, bool causal, LayerContext& context) {
  const double factor = attention_factor(settings, query);
  if (context.mode == Mode::training && (bias.defined() || settings.dropout > 0.0))
    return attend_written_out(query, key, value, factor, bias, causal, settings.dropout, context);
  if (!bias.defined() && query.is_cuda() && !at::GradMode::is_enabled()) {
    const Attending attending{query, key, value, causal, factor};
    if (can_fuse(attending)) return attend_fused(attending).mixed;
  }
  if (!bias.defined()) return at::scaled_dot_product_attention(query, key, value, {}, 0.0, causal, factor);
  const at::Tensor mask = causal ? bias.masked_fill(future_of(query, key), kUnseen) : bias;
  return at::scaled_dot_product_attention(query, key, value, mask, 0.0, false, factor);
}

namespace {

// As torch.nn.MultiheadAttention with batch_first, query from the first input, key and value from the second:
// [n, l, d], [n, k, d] -> [n, l, d].
Forward cross_attention(const Attributes& attributes) {
  return [settings = AttentionSettings(attributes)](TensorSpan inputs, TensorSpan weights,
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
    const at::Tensor mixed =
        attend(settings, query[0], projected[0], projected[1], /*bias=*/{}, /*causal=*/false, context);
    return {at::linear(joined_heads(mixed), projection.out, projection.out_bias)};
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
    const double factor = 1.0 / std::sqrt(static_cast<double>(inputs[0].size(-1)));
    return {attend_written_out(inputs[0], inputs[1], inputs[2], factor, {}, causal, dropout, context)};
  };
}

constexpr std::array kAttentionRows{
    Row{"multi_head_attention", self_attention, initialise_attention, self_attention_backward},
    Row{"cross_attention", cross_attention, initialise_attention},
    Row{"additive_attention", additive_attention, initialise_additive_attention},
    Row{"scaled_dot_product_attention", scaled_dot_product_attention},
};

}  // namespace

std::span<const Row> attention_rows() { return kAttentionRows; }

}  // namespace pp::model::ops
