// Convolutions by other ways than LibTorch's: as products of matrices where these are faster, and without
// stride where oneDNN's write past their buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "libprofile/model/gradient_sums.h"

namespace pp::model::ops {

// Two-dimensional convolutions as products of matrices. On a CPU those of few positions and many channels, as
// in the last blocks of image networks: oneDNN brings the weights into a layout of its own and the gradient
// back at every call; where the weights are many times the data this is most of the work. A product reads them
// as they are, and adds to the gradient in place. On a GPU gradients of kernels of 1, for which cuDNN's
// deterministic ways are slow: on an H200 (cuDNN 9.19, float32) a weight gradient of 64 x 256 channels from 32
// x 56 x 56 positions takes 3.5 ms, thirteen times the input's, and the input gradient of 256 x 512 channels
// with a stride of 2 3.9 ms.

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

// oneDNN's weight gradient of strided 1x1 convolutions writes past its buffer, or is wrong, where tensors are
// channels last and have fewer input channels than a vector holds floats: 8 with AVX2, 16 with AVX-512 (its
// issue 6035). A convolution without stride of the positions that are read gives the same without that. Every
// way to a convolution asks here: the operations' forwards and written backwards, what autograd records of them
// in graphs and under autocast, and calls of LibTorch. Convolutions have one, two or three sides.

/// Whether a convolution of x [.., in, sides...] with weight [out, in/groups, kernel...] must be avoided.
/// `stride` and `padding` have a number for each side, or one for all.
bool overruns(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding);

/// What a convolution with kernels of 1 and this stride reads of x: a view [.., in, ceil(side/stride)...].
at::Tensor positions_read(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride);

struct TransposedConvolution {
  at::IntArrayRef stride, padding, output_padding;  ///< a number for each side, or one for all
  std::int64_t groups = 1;
};

/// The same question for x [.., in, sides...] and weight [in, out/groups, kernel...].
bool transposed_overruns(const TransposedConvolution& convolution, const at::Tensor& x,
                         const at::Tensor& weight);
/// The result of such a one: computed without stride, positions put `stride` apart with zeros in between and
/// `output_padding` behind them, `padding` cut off all around. `bias` may be undefined.
at::Tensor convolve_transposed(const TransposedConvolution& convolution, const at::Tensor& x,
                               const at::Tensor& weight, const at::Tensor& bias);

}  // namespace pp::model::ops
