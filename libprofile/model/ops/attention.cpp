#include "libprofile/model/ops/attention.h"

#include <ATen/SDPBackend.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

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

enum class FusedKernel { cpu, flash, memory_efficient };

constexpr double kNoDropout = 0;
constexpr std::int64_t kAlignment = 8;      // of the width: others are padded by scaled_dot_product_attention
constexpr std::int64_t kMostOfFlash = 192;  // of the width, whose backward every card has

/// [n, groups, k, d] -> [n, heads, k, d]
at::Tensor for_each_head(const at::Tensor& x, std::int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.unsqueeze(2).expand({-1, -1, heads / x.size(1), -1, -1}).flatten(1, 2);
}

/// Its backward.
at::Tensor summed_by_group(const at::Tensor& gradient, std::int64_t groups) {
  if (gradient.size(1) == groups) return gradient;
  return gradient.unflatten(1, {groups, -1}).sum(2);
}

at::SDPBackend choice_for(const Attending& a, const at::Tensor& keys, const at::Tensor& values) {
  return static_cast<at::SDPBackend>(at::_fused_sdp_choice(a.queries, keys, values, std::nullopt, kNoDropout,
                                                           a.causal, a.factor,
                                                           /*enable_gqa=*/keys.size(1) != a.queries.size(1)));
}

std::optional<FusedKernel> kernel_for(const Attending& a) {
  const std::int64_t width = a.queries.size(3);
  if (width != a.values.size(3)) return std::nullopt;
  if (a.queries.is_cpu()) return FusedKernel::cpu;
  if (a.mask.defined() || width % kAlignment != 0 || a.queries.size(2) != a.keys.size(2)) return std::nullopt;
  if (at::autocast::is_autocast_enabled(a.queries.device().type())) return std::nullopt;
  at::SDPBackend choice = choice_for(a, a.keys, a.values);
  // Keys of groups are for FlashAttention alone; repeated they are as the queries.
  if (choice == at::SDPBackend::math && a.keys.size(1) != a.queries.size(1))
    choice = choice_for(a, a.queries, a.queries);
  if (choice == at::SDPBackend::flash_attention && width <= kMostOfFlash) return FusedKernel::flash;
  if (choice == at::SDPBackend::efficient_attention) return FusedKernel::memory_efficient;
  return std::nullopt;
}

FusedKernel certain_kernel(const Attending& a) {
  if (const auto kernel = kernel_for(a)) return *kernel;
  throw Error(ErrorKind::internal, "attention: no fused kernel takes these heads");
}

}  // namespace

bool can_fuse(const Attending& attending) { return kernel_for(attending).has_value(); }

Fused attend_fused(const Attending& a) {
  const FusedKernel kernel = certain_kernel(a);
  Fused fused;
  if (kernel == FusedKernel::cpu) {
    std::tie(fused.mixed, fused.log_sum_exp) = at::_scaled_dot_product_flash_attention_for_cpu(
        a.queries, a.keys, a.values, kNoDropout, a.causal, optional_mask(a.mask), a.factor);
  } else if (kernel == FusedKernel::flash) {
    auto [mixed, log_sum_exp, first_queries, first_keys, queries, keys, seed, offset, scores] =
        at::_scaled_dot_product_flash_attention(a.queries, a.keys, a.values, kNoDropout, a.causal,
                                                /*return_debug_mask=*/false, a.factor);
    fused = {mixed, log_sum_exp, seed, offset};
  } else {
    const std::int64_t heads = a.queries.size(1);
    auto [mixed, log_sum_exp, seed, offset] = at::_scaled_dot_product_efficient_attention(
        a.queries, for_each_head(a.keys, heads), for_each_head(a.values, heads), std::nullopt,
        /*compute_log_sumexp=*/true, kNoDropout, a.causal, a.factor);
    fused = {mixed, log_sum_exp, seed, offset};
  }
  return fused;
}

std::array<at::Tensor, 3> fused_backward(const Attending& a, const Fused& fused, const at::Tensor& gradient) {
  const FusedKernel kernel = certain_kernel(a);
  if (kernel == FusedKernel::cpu) {
    auto [queries, keys, values] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, a.queries, a.keys, a.values, fused.mixed, fused.log_sum_exp, kNoDropout, a.causal,
        optional_mask(a.mask), a.factor);
    return {queries, keys, values};
  }
  if (kernel == FusedKernel::flash) {
    auto [queries, keys, values] = at::_scaled_dot_product_flash_attention_backward(
        gradient, a.queries, a.keys, a.values, fused.mixed, fused.log_sum_exp, /*cum_seq_q=*/{},
        /*cum_seq_k=*/{}, a.queries.size(2), a.keys.size(2), kNoDropout, a.causal, fused.seed, fused.offset,
        a.factor);
    return {queries, keys, values};
  }
  const std::int64_t heads = a.queries.size(1), groups = a.keys.size(1);
  auto [queries, keys, values, bias] = at::_scaled_dot_product_efficient_attention_backward(
      gradient, a.queries, for_each_head(a.keys, heads), for_each_head(a.values, heads), /*attn_bias=*/{},
      fused.mixed, fused.log_sum_exp, fused.seed, fused.offset, kNoDropout,
      /*grad_input_mask=*/{true, true, true, false}, a.causal, a.factor);
  return {queries, summed_by_group(keys, groups), summed_by_group(values, groups)};
}

std::int64_t position_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance,
                             Sight sight) {
  std::int64_t first = 0;
  std::int64_t apart = std::max<std::int64_t>(-distance, 0);
  if (sight == Sight::both_sides) {
    buckets /= 2;
    first = distance > 0 ? buckets : 0;
    apart = std::abs(distance);
  }
  const std::int64_t exact = buckets / 2;
  if (apart < exact) return first + apart;
  const double near = static_cast<double>(exact);
  const double share =
      std::log2(static_cast<double>(apart) / near) / std::log2(static_cast<double>(max_distance) / near);
  const auto shared = static_cast<std::int64_t>(share * static_cast<double>(buckets - exact));
  return first + std::min(exact + shared, buckets - 1);
}

at::Tensor position_bias(const at::Tensor& table, std::int64_t length, std::int64_t max_distance, Sight sight) {
  const at::Tensor bucket_of = at::empty({2 * length - 1}, at::kLong);  // of key - query from 1 - length on
  auto* next = bucket_of.mutable_data_ptr<std::int64_t>();
  for (std::int64_t distance = 1 - length; distance < length; ++distance)
    *next++ = position_bucket(distance, table.size(1), max_distance, sight);
  const at::Tensor by_distance = table.transpose(1, 2).index_select(2, bucket_of.to(table.device()));
  return by_distance.unfold(2, length, 1).flip(2);  // the first query's row is the last window
}

namespace {

// Any [n, ...] -> [n, buckets, heads], the weight for every sample
Forward relative_position_bias(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    return {weights[0].unsqueeze(0).expand({inputs[0].size(0), -1, -1})};
  };
}

constexpr std::array kAttentionRows{
    Row{"multi_head_attention", self_attention, initialise_attention, self_attention_backward},
    Row{"cross_attention", cross_attention, initialise_attention},
    Row{"additive_attention", additive_attention, initialise_additive_attention},
    Row{"scaled_dot_product_attention", scaled_dot_product_attention},
    Row{"relative_position_bias", relative_position_bias, initialise_normal},
};

}  // namespace

std::span<const Row> attention_rows() { return kAttentionRows; }

}  // namespace pp::model::ops
