// What the products of attention have in common.
#pragma once

#include <ATen/core/Tensor.h>

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

}  // namespace pp::model::ops
