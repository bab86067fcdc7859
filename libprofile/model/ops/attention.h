// What the forms of attention share: settings and projections, LibTorch's kernels that hold no scores, and
// the learned bias by relative position.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>

#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

/// What the attributes of both products of attention say.
struct AttentionSettings {
  std::int64_t heads;
  bool bias, scaled;
  double dropout;

  explicit AttentionSettings(const Attributes& attributes);
};

/// in_proj_weight [3d, d], in_proj_bias [3d], out_proj.weight [d, d], out_proj.bias [d], the biases only with
/// the attribute, else undefined.
struct Projections {
  at::Tensor in, in_bias, out, out_bias;
};
Projections projections(const AttentionSettings& settings, TensorSpan weights);

/// [n, l, k d] -> [k, n, heads, l, d / heads]
at::Tensor split_heads(const at::Tensor& projected, std::int64_t k, std::int64_t heads);
/// [n, heads, l, width] -> [n, l, heads width]
at::Tensor joined_heads(const at::Tensor& mixed);

/// What scores are multiplied with.
double attention_factor(const AttentionSettings& settings, const at::Tensor& query);

/// Query [n, heads, l, width], key and value [n, heads, k, width] -> [n, heads, l, width]. LibTorch's kernels,
/// which never hold all scores, where neither a `bias` [heads, l, k] to the scores nor dropout in training,
/// which draws from our generator, forbids them; else written out. `causal`: a position sees those up to
/// itself.
at::Tensor attend(const AttentionSettings& settings, const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value, const at::Tensor& bias, bool causal, LayerContext& context);

/// multi_head_attention
Forward self_attention(const Attributes& attributes);
/// Without dropout and without a bias to the scores, where a fused kernel takes the heads.
std::optional<WrittenBackward> self_attention_backward(const Attributes& attributes);

// LibTorch's kernels that hold no scores, forward and backward called one by one: no autograd, whose engine on
// a GPU costs a change of threads. Dao et al., FlashAttention, 2022; Rabe and Staats, Self-attention does not
// need O(n^2) memory, 2021.

/// Queries [n, heads, l, d], keys and values [n, groups, k, d]; groups divides heads, each of them serves as
/// many heads that follow each other. `mask` is added to the scores, [l, k], or undefined.
struct Attending {
  at::Tensor queries, keys, values;
  bool causal = false;
  double factor = 1;  ///< of the scores
  at::Tensor mask = {};
};

/// A mask as LibTorch takes it: none where it is undefined.
inline std::optional<at::Tensor> optional_mask(const at::Tensor& mask) {
  return mask.defined() ? std::optional(mask) : std::nullopt;
}

/// Whether one takes them: on a CPU LibTorch's own; on a GPU FlashAttention of half types, CUTLASS's
/// memory-efficient kernel of float32. Where not, at::scaled_dot_product_attention knows what to do. Says the
/// same of equal shapes, types and devices.
bool can_fuse(const Attending& attending);

/// What the backward needs beside the operands. `seed` and `offset` are what GPU kernels want to have back.
struct Fused {
  at::Tensor mixed;         ///< [n, heads, l, d]
  at::Tensor log_sum_exp;   ///< of the scores
  at::Tensor seed, offset;  ///< undefined on a CPU
};
/// Both throw pp::Error (internal) for what no kernel takes.
Fused attend_fused(const Attending& attending);
/// From the gradient of `mixed` to those of queries, keys and values.
std::array<at::Tensor, 3> fused_backward(const Attending& attending, const Fused& fused,
                                         const at::Tensor& gradient);

// The learned bias of attention scores by relative position (Raffel et al., Exploring the limits of transfer
// learning with a unified text-to-text transformer, 2020, sec. 2.1). The table of biases is an ordinary tensor
// that layers hand on, so that all attention layers can use one without sharing parameters.

enum class Sight { both_sides, backward };

/// Bucket of a key `distance` positions behind the query (negative: in front of it). Near distances have
/// buckets of their own, farther ones share them on a logarithmic scale, those from `max_distance` on the last.
/// With sight to both sides, the first half is for keys at or in front of the query.
std::int64_t position_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance,
                             Sight sight);

/// Table [n, buckets, heads] -> bias of the scores [n, heads, length, length] (query, key).
at::Tensor position_bias(const at::Tensor& table, std::int64_t length, std::int64_t max_distance, Sight sight);

}  // namespace pp::model::ops
