#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

// [n, ...] -> [n, shape...]; shares storage with its input where it can
Forward reshape(const Attributes& attributes) {
  return unary([shape = integers(attributes, "shape")](const at::Tensor& x) {
    c10::SmallVector<std::int64_t, 8> sizes{x.size(0)};
    sizes.append(shape.begin(), shape.end());
    return x.reshape(sizes);
  });
}

// [n, ...] -> the same dimensions in another order
Forward permute(const Attributes& attributes) {
  std::vector<std::int64_t> dims{0};
  for (const std::int64_t dim : integers(attributes, "dims")) dims.push_back(dim + 1);
  return unary([dims](const at::Tensor& x) { return x.permute(dims); });
}

// Along dimension `dim` of a sample
Forward slice(const Attributes& attributes) {
  return unary([dim = integer(attributes, "dim") + 1, start = integer(attributes, "start"),
                end = integer(attributes, "end"), step = integer(attributes, "step")](const at::Tensor& x) {
    return x.slice(dim, start, end, step);
  });
}

// Along dimension `dim` of a sample: `chunks` outputs of one size
Forward chunk(const Attributes& attributes) {
  return [dim = integer(attributes, "dim") + 1, chunks = integer(attributes, "chunks")](
             TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
    Tensors parts;
    for (const at::Tensor& part : inputs[0].chunk(chunks, dim)) parts.push_back(part);
    return parts;
  };
}

// [n, ..., rows, inner], [n, ..., inner, columns] -> [n, ..., rows, columns]
Forward matmul(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
    return {at::matmul(inputs[0], inputs[1])};
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

}  // namespace pp::model::ops
