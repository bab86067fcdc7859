// Two-dimensional convolutions as products of matrices, for a CPU: those of few positions and many channels, as
// in the last blocks of image networks. oneDNN brings the weights into a layout of its own and the gradient
// back at every call; where the weights are many times the data this is most of the work. A product reads them
// as they are, and adds to the gradient in place.
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

/// Whether forward and input gradient are faster so, and whether the weight gradient is. `y`: the output or its
/// gradient. Both by one figure, output channels by positions (n h' w'): 16 and 1 are where the two ways cross
/// in `scripts/bench convolution`.
bool few_positions(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight);
bool few_positions_for_weights(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight);

}  // namespace pp::model::ops
