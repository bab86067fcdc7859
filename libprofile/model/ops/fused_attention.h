// Attention by LibTorch's kernels that hold no scores, forward and backward called one by one: no autograd,
// whose engine on a GPU costs a change of threads. Dao et al., FlashAttention, 2022; Rabe and Staats,
// Self-attention does not need O(n^2) memory, 2021.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

namespace pp::model::ops {

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

}  // namespace pp::model::ops
