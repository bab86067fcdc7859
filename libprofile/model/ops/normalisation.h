// Norms by the root of the mean square of the last dimension, with their backward written out; attention
// norms its queries and keys so, too.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace pp::model::ops {

/// The type that sums are made in: float32 of half types.
at::ScalarType wide(const at::Tensor& x);

/// x [..., d] -> 1 / sqrt(mean of squares + eps), [..., 1]; of bfloat16 in float32.
at::Tensor inverse_root_mean_square(const at::Tensor& x, double eps);

/// x times its inverse root mean square times (weight [d] + offset), in the type of x. Half types multiply in
/// float32; without an offset the product with the weight is theirs, as in transformers' LlamaRMSNorm, else all
/// of it is float32, as in its Gemma2RMSNorm.
at::Tensor scaled_rows(const at::Tensor& x, const at::Tensor& inverse, const at::Tensor& weight, double offset);

/// The gradients of x and of the weight, whatever the norm's result was rounded to.
std::pair<at::Tensor, at::Tensor> scaled_rows_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                       const at::Tensor& inverse, const at::Tensor& weight,
                                                       double offset);

}  // namespace pp::model::ops
