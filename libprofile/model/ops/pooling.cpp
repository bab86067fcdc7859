#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
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
  return unary([pool = Pool(attributes)](const at::Tensor& x) {
    return at::max_pool2d(x, pool.kernel_size, pool.stride, pool.padding, /*dilation=*/1, pool.ceil_mode);
  });
}

Forward avg_pool2d(const Attributes& attributes) {
  return unary(
      [pool = Pool(attributes), count_padding = boolean(attributes, "count_include_pad")](const at::Tensor& x) {
        return at::avg_pool2d(x, pool.kernel_size, pool.stride, pool.padding, pool.ceil_mode, count_padding);
      });
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

constexpr std::array kRows{
    Row{"max_pool2d", max_pool2d},
    Row{"avg_pool2d", avg_pool2d},
    Row{"adaptive_avg_pool2d", adaptive_avg_pool2d},
    Row{"upsample_nearest2d", upsample_nearest2d},
    Row{"upsample_bilinear2d", upsample_bilinear2d},
};

}  // namespace

std::span<const Row> pooling_rows() { return kRows; }

}  // namespace pp::model::ops
