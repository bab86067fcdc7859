#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_nearest2d.h>

#include "libprofile/core/op_table.h"
#include "libprofile/model/ops/forward.h"

// All: [n, c, h, w] -> [n, c, h', w']
namespace pp::model::ops {

Tensors max_pool2d(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                   LayerContext& /*context*/) {
  return {at::max_pool2d(inputs[0], integer(attributes, "kernel_size"), integer(attributes, "stride"),
                         integer(attributes, "padding"), /*dilation=*/1, boolean(attributes, "ceil_mode"))};
}

Tensors avg_pool2d(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                   LayerContext& /*context*/) {
  return {at::avg_pool2d(inputs[0], integer(attributes, "kernel_size"), integer(attributes, "stride"),
                         integer(attributes, "padding"), boolean(attributes, "ceil_mode"),
                         boolean(attributes, "count_include_pad"))};
}

Tensors adaptive_avg_pool2d(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                            LayerContext& /*context*/) {
  const std::int64_t side = integer(attributes, "output_size");
  return {at::adaptive_avg_pool2d(inputs[0], {side, side})};
}

Tensors upsample_nearest2d(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                           LayerContext& /*context*/) {
  const std::int64_t factor = integer(attributes, "scale_factor");
  return {at::upsample_nearest2d(inputs[0], {factor * inputs[0].size(2), factor * inputs[0].size(3)})};
}

Tensors upsample_bilinear2d(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                            LayerContext& /*context*/) {
  const std::int64_t factor = integer(attributes, "scale_factor");
  return {at::upsample_bilinear2d(inputs[0], {factor * inputs[0].size(2), factor * inputs[0].size(3)},
                                  boolean(attributes, "align_corners"))};
}

}  // namespace pp::model::ops
