#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>

#include "libprofile/core/op_table.h"
#include "libprofile/model/ops/forward.h"

// All: [n, c, h, w] -> [n, c, h', w']
namespace pp::model::ops {

Tensors max_pool2d(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                   LayerContext& /*context*/) {
  return {at::max_pool2d(inputs[0], integer(attributes, "kernel_size"), integer(attributes, "stride"),
                         integer(attributes, "padding"))};
}

Tensors avg_pool2d(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                   LayerContext& /*context*/) {
  return {at::avg_pool2d(inputs[0], integer(attributes, "kernel_size"), integer(attributes, "stride"),
                         integer(attributes, "padding"))};
}

Tensors adaptive_avg_pool2d(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                            LayerContext& /*context*/) {
  const std::int64_t side = integer(attributes, "output_size");
  return {at::adaptive_avg_pool2d(inputs[0], {side, side})};
}

}  // namespace pp::model::ops
