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
            const bool bias = sums.size() > 1;
            if (few_positions_for_weights(c, saved[0], weights[0])) {
              add_weight_gradient_by_product(c, gradient, saved[0], weights[0], sums);
              if (bias) sums.add(1, gradient.sum({0, 2, 3}));
              return;
            }
            auto [input, by_weight, by_bias] =
                gradients(c, gradient, saved[0], weights[0], {false, true, bias});
            sums.add(0, std::move(by_weight));
            sums.add(1, std::move(by_bias));
          }};
}

// [n, in, h, w] -> [n, out, h', w']; weight [in, out/groups, kernel, kernel], bias [out]
Forward conv_transpose2d(const Attributes& attributes) {
  return [padding = integer(attributes, "padding"), stride = integer(attributes, "stride"),
          more = integer(attributes, "output_padding"), groups = integer(attributes, "groups")](
             TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    return {at::conv_transpose2d(inputs[0], weights[0], weights.size() > 1 ? weights[1] : at::Tensor(), stride,
                                 padding, more, groups)};
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
