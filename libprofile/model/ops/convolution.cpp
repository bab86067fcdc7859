#include <ATen/ops/conv2d.h>

#include <array>

#include "libprofile/core/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

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

}  // namespace pp::model::ops
