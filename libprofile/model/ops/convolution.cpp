#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>

#include <array>

#include "libprofile/core/ops/attributes.h"
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
Forward conv2d(const Attributes& attributes) {
  const std::array padding{integer(attributes, "padding"), integer(attributes, "padding_width")};
  return [padding, stride = integer(attributes, "stride"), dilation = integer(attributes, "dilation"),
          groups = integer(attributes, "groups")](TensorSpan inputs, TensorSpan weights,
                                                  LayerContext& /*context*/) -> Tensors {
    return {at::conv2d(inputs[0], weights[0], weights.size() > 1 ? weights[1] : at::Tensor(), stride, padding,
                       dilation, groups)};
  };
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
    Row{"conv2d", conv2d, initialise_by_fan_in},
    Row{"conv_transpose2d", conv_transpose2d, initialise_by_fan_in},
};

}  // namespace

std::span<const Row> convolution_rows() { return kRows; }

}  // namespace pp::model::ops
