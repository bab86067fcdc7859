#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_nearest2d.h>

#include <array>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

// All: [n, c, h, w] -> [n, c, h', w']
namespace pp::model::ops {
namespace {

/// What the pools have in common.
struct Pool {
  std::int64_t kernel_size, stride, padding;
  bool ceil_mode;

  explicit Pool(const Attributes& attributes)
      : kernel_size(integer(attributes, "kernel_size")),
        stride(integer(attributes, "stride")),
        padding(integer(attributes, "padding")),
        ceil_mode(boolean(attributes, "ceil_mode")) {}
};

Forward max_pool2d(const Attributes& attributes) {
  return
      [pool = Pool(attributes)](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& context) -> Tensors {
        const auto [y, indices] =
            at::max_pool2d_with_indices(inputs[0], pool.kernel_size, pool.stride, pool.padding,
                                        /*dilation=*/1, pool.ceil_mode);
        save(context, {inputs[0], indices});
        return {y};
      };
}
std::optional<WrittenBackward> max_pool2d_backward(const Attributes& attributes) {
  return WrittenBackward{.inputs = [pool = Pool(attributes)](Tensors& saved, TensorSpan /*weights*/,
                                                             const at::Tensor& gradient) -> Tensors {
    return {at::max_pool2d_with_indices_backward(gradient, saved[0], pool.kernel_size, pool.stride,
                                                 pool.padding,
                                                 /*dilation=*/1, pool.ceil_mode, saved[1])};
  }};
}

Forward avg_pool2d(const Attributes& attributes) {
  return [pool = Pool(attributes), count_padding = boolean(attributes, "count_include_pad")](
             TensorSpan inputs, TensorSpan /*weights*/, LayerContext& context) -> Tensors {
    save(context, {inputs[0]});
    return {
        at::avg_pool2d(inputs[0], pool.kernel_size, pool.stride, pool.padding, pool.ceil_mode, count_padding)};
  };
}
std::optional<WrittenBackward> avg_pool2d_backward(const Attributes& attributes) {
  return WrittenBackward{
      .inputs = [pool = Pool(attributes), count_padding = boolean(attributes, "count_include_pad")](
                    Tensors& saved, TensorSpan /*weights*/, const at::Tensor& gradient) -> Tensors {
        return {at::avg_pool2d_backward(gradient, saved[0], pool.kernel_size, pool.stride, pool.padding,
                                        pool.ceil_mode, count_padding, /*divisor_override=*/std::nullopt)};
      }};
}

Forward adaptive_avg_pool2d(const Attributes& attributes) {
  return unary([side = integer(attributes, "output_size")](const at::Tensor& x) {
    return at::adaptive_avg_pool2d(x, {side, side});
  });
}

Forward upsample_nearest2d(const Attributes& attributes) {
  return unary([factor = integer(attributes, "scale_factor")](const at::Tensor& x) {
    return at::upsample_nearest2d(x, {factor * x.size(2), factor * x.size(3)});
  });
}

Forward upsample_bilinear2d(const Attributes& attributes) {
  return unary([factor = integer(attributes, "scale_factor"),
                align_corners = boolean(attributes, "align_corners")](const at::Tensor& x) {
    return at::upsample_bilinear2d(x, {factor * x.size(2), factor * x.size(3)}, align_corners);
  });
}

constexpr std::array kPoolingRows{
    Row{.name = "max_pool2d", .bind = max_pool2d, .backward = max_pool2d_backward},
    Row{.name = "avg_pool2d", .bind = avg_pool2d, .backward = avg_pool2d_backward},
    Row{.name = "adaptive_avg_pool2d", .bind = adaptive_avg_pool2d, .deterministic = false},
    Row{"upsample_nearest2d", upsample_nearest2d},
    Row{.name = "upsample_bilinear2d", .bind = upsample_bilinear2d, .deterministic = false},
};

}  // namespace

std::span<const Row> pooling_rows() { return kPoolingRows; }

}  // namespace pp::model::ops
