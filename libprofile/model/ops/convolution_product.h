// Two-dimensional convolutions as products of matrices. On a CPU those of few positions and many channels, as
// in the last blocks of image networks: oneDNN brings the weights into a layout of its own and the gradient
// back at every call; where the weights are many times the data this is most of the work. A product reads them
// as they are, and adds to the gradient in place. On a GPU gradients of kernels of 1, for which cuDNN's
// deterministic ways are slow: on an H200 (cuDNN 9.19, float32) a weight gradient of 64 x 256 channels from 32
// x 56 x 56 positions takes 3.5 ms, thirteen times the input's, and the input gradient of 256 x 512 channels
// with a stride of 2 3.9 ms.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "libprofile/model/weight_sums.h"

namespace pp::model::ops {

struct Convolution {
  std::array<std::int64_t, 2> padding;  ///< of height and width
  std::int64_t stride, dilation, groups;
};

/// x [n, in, h, w], weight [out, in, height, width] of one group, bias [out] or undefined -> [n, out, h', w'].
at::Tensor convolve_by_product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias);
/// gradient [n, out, h', w'] -> the input's, as `x`.
at::Tensor input_gradient_by_product(const Convolution& convolution, const at::Tensor& gradient,
                                     const at::Tensor& x, const at::Tensor& weight);
/// Adds the weight's, parameter 0 of `sums`.
void add_weight_gradient_by_product(const Convolution& convolution, const at::Tensor& gradient,
                                    const at::Tensor& x, const at::Tensor& weight, WeightSums& sums);

/// Whether the forward runs as a product, the input gradient, the weight gradient: on a CPU as the run's
/// kernels say (kernels/kernels.h).
bool forward_is_product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight);
bool input_gradient_is_product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight);
bool weight_gradient_is_product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight);

}  // namespace pp::model::ops
