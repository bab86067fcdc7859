#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "libprofile/core/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

/// True above the diagonal: what a position must not see. [s, s]
at::Tensor future(std::int64_t length, const at::Tensor& like) {
  return at::ones({length, length}, like.options().dtype(at::kBool).requires_grad(false)).triu(1);
}

}  // namespace

// Self-attention as torch.nn.MultiheadAttention with batch_first: [n, s, d] -> [n, s, d]; weights:
// in_proj_weight [3d, d], in_proj_bias [3d], out_proj.weight [d, d], out_proj.bias [d], the biases only with
// the attribute. Written out, so that dropout can draw from our generator.
Tensors multi_head_attention(const Attributes& attributes, TensorSpan inputs, TensorSpan weights,
                             LayerContext& context) {
  const at::Tensor& x = inputs[0];
  const std::int64_t heads = integer(attributes, "num_heads");
  const std::int64_t n = x.size(0), s = x.size(1), d = x.size(2), width = d / heads;

  const bool bias = boolean(attributes, "bias");
  const at::Tensor none;
  const at::Tensor projected = at::linear(x, weights[0], bias ? weights[1] : none);  // [n, s, 3d]
  const at::Tensor split =
      projected.view({n, s, 3, heads, width}).permute({2, 0, 3, 1, 4});  // [3, n, heads, s, width]
  const at::Tensor query = split.select(0, 0).mul(1.0 / std::sqrt(static_cast<double>(width)));
  at::Tensor scores = at::matmul(query, split.select(0, 1).transpose(-2, -1));  // [n, heads, s, s]
  if (boolean(attributes, "causal")) {
    scores = scores.masked_fill(future(s, x), -std::numeric_limits<double>::infinity());
  }
  at::Tensor shares = at::softmax(scores, -1);
  const double probability = number(attributes, "dropout");
  if (context.mode == Mode::training && probability > 0.0) shares = drop(shares, probability, context);
  const at::Tensor mixed = at::matmul(shares, split.select(0, 2));  // [n, heads, s, width]
  return {
      at::linear(mixed.transpose(1, 2).reshape({n, s, d}), weights[bias ? 2 : 1], bias ? weights[3] : none)};
}

}  // namespace pp::model::ops
