#include "libprofile/model/ops/strided_convolution.h"

#include <ATen/ops/convolution.h>

#include <algorithm>
#include <vector>

namespace pp::model::ops {
namespace {

std::int64_t sides_of(const at::Tensor& weight) { return weight.dim() - 2; }

/// The number of side `i`.
std::int64_t of_side(at::IntArrayRef numbers, std::int64_t i) {
  return numbers.size() == 1 ? numbers[0] : numbers[static_cast<std::size_t>(i)];
}

bool strided_1x1(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride) {
  const at::IntArrayRef kernel = weight.sizes().slice(2);
  return x.is_cpu() && std::ranges::all_of(kernel, [](std::int64_t side) { return side == 1; }) &&
         std::ranges::any_of(stride, [](std::int64_t step) { return step > 1; });
}

}  // namespace

bool overruns(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding) {
  constexpr std::int64_t kVector = 16;
  return strided_1x1(x, weight, stride) && weight.size(1) < kVector &&
         std::ranges::all_of(padding, [](std::int64_t side) { return side == 0; });
}

at::Tensor positions_read(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride) {
  at::Tensor read = x;
  for (std::int64_t i = 0; i < sides_of(weight); ++i) {
    const std::int64_t side = x.dim() - sides_of(weight) + i;
    read = read.slice(side, 0, x.size(side), of_side(stride, i));
  }
  return read;
}

bool transposed_overruns(const TransposedConvolution& convolution, const at::Tensor& x,
                         const at::Tensor& weight) {
  return strided_1x1(x, weight, convolution.stride);
}

at::Tensor convolve_transposed(const TransposedConvolution& convolution, const at::Tensor& x,
                               const at::Tensor& weight, const at::Tensor& bias) {
  const std::int64_t sides = sides_of(weight), first = x.dim() - sides;
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(sides), 1), zeros(ones.size(), 0);
  const at::Tensor y = at::convolution(x, weight, {}, ones, zeros, ones, /*transposed=*/true,
                                       /*output_padding=*/zeros, convolution.groups);
  std::vector<std::int64_t> sizes = y.sizes().vec();
  const auto reach = [&](std::int64_t i) {
    return (y.size(first + i) - 1) * of_side(convolution.stride, i) + 1;
  };
  for (std::int64_t i = 0; i < sides; ++i)
    sizes[static_cast<std::size_t>(first + i)] = reach(i) + of_side(convolution.output_padding, i);
  at::Tensor apart = y.new_zeros(sizes);
  at::Tensor kept = apart;
  for (std::int64_t i = 0; i < sides; ++i)
    kept = kept.slice(first + i, 0, reach(i), of_side(convolution.stride, i));
  kept.copy_(y);
  for (std::int64_t i = 0; i < sides; ++i) {
    const std::int64_t padding = of_side(convolution.padding, i);
    apart = apart.narrow(first + i, padding, apart.size(first + i) - 2 * padding);
  }
  if (!bias.defined()) return apart;
  std::vector<std::int64_t> by_channel(ones);
  by_channel.insert(by_channel.begin(), -1);
  return apart.add(bias.view(by_channel));
}

}  // namespace pp::model::ops
