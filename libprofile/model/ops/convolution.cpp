#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/convolution_backward.h>

#include <array>
#include <tuple>
#include <utility>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/convolution_product.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

// [n, in, l] -> [n, out, l']; weight [out, in/groups, kernel], bias [out]
Forward conv1d(const Attributes& attributes) {
  return [padding = integer(attributes, "padding"), stride = integer(attributes, "stride"),
          dilation = integer(attributes, "dilation"), groups = integer(attributes, "groups")](
             TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    return {at::conv1d(inputs[0], weights[0], weights.size() > 1 ? weights[1] : at::Tensor(), stride, padding,
                       dilation, groups)};
  };
}

// [n, in, h, w] -> [n, out, h', w']; weight [out, in/groups, height, width], bias [out]
Convolution convolution(const Attributes& attributes) {
  return {.padding = {integer(attributes, "padding"), integer(attributes, "padding_width")},
          .stride = integer(attributes, "stride"),
          .dilation = integer(attributes, "dilation"),
          .groups = integer(attributes, "groups")};
}

Forward conv2d(const Attributes& attributes) {
  return
      [c = convolution(attributes)](TensorSpan inputs, TensorSpan weights, LayerContext& context) -> Tensors {
        const at::Tensor &x = inputs[0], &weight = weights[0],
                         bias = weights.size() > 1 ? weights[1] : at::Tensor();
        save(context, {x});
        if (few_positions(c, x, weight)) return {convolve_by_product(c, x, weight, bias)};
        return {at::conv2d(x, weight, bias, c.stride, c.padding, c.dilation, c.groups)};
      };
}

/// LibTorch's, of those that `wanted` names: input, weight, bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(const Convolution& c, const at::Tensor& gradient,
                                                         const at::Tensor& x, const at::Tensor& weight,
                                                         std::array<bool, 3> wanted) {
  const std::array channels{weight.size(0)};
  return at::convolution_backward(gradient, x, weight, at::IntArrayRef(channels), c.stride, c.padding,
                                  c.dilation,
                                  /*transposed=*/false, /*output_padding=*/0, c.groups, wanted);
}

/// oneDNN's weight gradient of strided 1x1 convolutions writes past its buffer, or is wrong, where tensors are
/// channels last and have fewer input channels than a vector holds floats: 8 with AVX2, 16 with AVX-512 (its
/// issue 6035).
bool overruns(const Convolution& c, const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cpu() && c.stride > 1 && weight.size(1) < 16 && weight.size(2) == 1 && weight.size(3) == 1 &&
         c.padding[0] == 0 && c.padding[1] == 0;
}

/// The weight's and, if wanted, the bias's. What an overrunning convolution reads, one without strides reads
/// as well.
std::pair<at::Tensor, at::Tensor> weight_gradients(Convolution c, const at::Tensor& gradient, at::Tensor x,
                                                   const at::Tensor& weight, bool bias) {
  if (overruns(c, x, weight)) {
    for (const std::int64_t side : {2, 3}) x = x.slice(side, 0, x.size(side), c.stride);
    c.stride = 1;
  }
  auto [input, by_weight, by_bias] = gradients(c, gradient, x, weight, {false, true, bias});
  return {std::move(by_weight), std::move(by_bias)};
}

std::optional<WrittenBackward> conv2d_backward(const Attributes& attributes) {
  const Convolution c = convolution(attributes);
  return WrittenBackward{
      .inputs = [c](Tensors& saved, TensorSpan weights, const at::Tensor& gradient) -> Tensors {
        if (few_positions(c, saved[0], weights[0]))
          return {input_gradient_by_product(c, gradient, saved[0], weights[0])};
        return {std::get<0>(gradients(c, gradient, saved[0], weights[0], {true, false, false}))};
      },
      .weights =
          [c](Tensors& saved, TensorSpan weights, const at::Tensor& gradient, WeightSums& sums) {
            const bool bias = sums.size() > 1 && sums.wants(1);
            if (!sums.wants(0)) return sums.add(1, gradient.sum({0, 2, 3}));
            if (few_positions_for_weights(c, saved[0], weights[0])) {
              add_weight_gradient_by_product(c, gradient, saved[0], weights[0], sums);
              if (bias) sums.add(1, gradient.sum({0, 2, 3}));
              return;
            }
            auto [by_weight, by_bias] = weight_gradients(c, gradient, saved[0], weights[0], bias);
            sums.add(0, std::move(by_weight));
            if (bias) sums.add(1, std::move(by_bias));
          }};
}

/// A transposed 1x1 convolution with a stride: one without, its positions `stride` apart and zeros in between,
/// `more` of them below and right, and `padding` cut off all around. LibTorch's own may never return, for the
/// reason of overruns().
at::Tensor transposed_1x1(const at::Tensor& x, const at::Tensor& weight, std::int64_t padding,
                          std::int64_t stride, std::int64_t more, std::int64_t groups) {
  const at::Tensor y = at::conv_transpose2d(x, weight, {}, 1, 0, 0, groups);
  const auto reach = [&](std::int64_t side) { return (y.size(side) - 1) * stride + 1; };
  at::Tensor apart = y.new_zeros({y.size(0), y.size(1), reach(2) + more, reach(3) + more});
  apart.slice(2, 0, reach(2), stride).slice(3, 0, reach(3), stride).copy_(y);
  return apart.narrow(2, padding, apart.size(2) - 2 * padding).narrow(3, padding, apart.size(3) - 2 * padding);
}

// [n, in, h, w] -> [n, out, h', w']; weight [in, out/groups, kernel, kernel], bias [out]
Forward conv_transpose2d(const Attributes& attributes) {
  return [padding = integer(attributes, "padding"), stride = integer(attributes, "stride"),
          more = integer(attributes, "output_padding"), groups = integer(attributes, "groups")](
             TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    const at::Tensor &x = inputs[0], &weight = weights[0],
                     bias = weights.size() > 1 ? weights[1] : at::Tensor();
    if (stride == 1 || weight.size(2) > 1 || !x.is_cpu())
      return {at::conv_transpose2d(x, weight, bias, stride, padding, more, groups)};
    const at::Tensor y = transposed_1x1(x, weight, padding, stride, more, groups);
    return {bias.defined() ? y.add(bias.view({-1, 1, 1})) : y};
  };
}

constexpr std::array kRows{
    Row{"conv1d", conv1d, initialise_by_fan_in},
    Row{"conv2d", conv2d, initialise_by_fan_in, conv2d_backward},
    Row{"conv_transpose2d", conv_transpose2d, initialise_by_fan_in},
};

}  // namespace

std::span<const Row> convolution_rows() { return kRows; }

}  // namespace pp::model::ops
