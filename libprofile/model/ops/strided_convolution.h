// oneDNN's weight gradient of strided 1x1 convolutions writes past its buffer, or is wrong, where tensors are
// channels last and have fewer input channels than a vector holds floats: 8 with AVX2, 16 with AVX-512 (its
// issue 6035). A convolution without stride of the positions that are read gives the same without that. Every
// way to a convolution asks here: the operations' forwards and written backwards, what autograd records of them
// in graphs and under autocast, and calls of LibTorch. Convolutions have one, two or three sides.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pp::model::ops {

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
