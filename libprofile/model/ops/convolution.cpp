#include <ATen/ops/conv2d.h>

#include "libprofile/core/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

// [n, in, h, w] -> [n, out, h', w']; weight [out, in/groups, height, width], bias [out]
Tensors conv2d(const Attributes& attributes, TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) {
  return {at::conv2d(inputs[0], weights[0], weights.size() > 1 ? weights[1] : at::Tensor(),
                     integer(attributes, "stride"),
                     {integer(attributes, "padding"), integer(attributes, "padding_width")},
                     integer(attributes, "dilation"), integer(attributes, "groups"))};
}

}  // namespace pp::model::ops
