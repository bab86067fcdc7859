// Convolutions, pools, and what enlarges images again.
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_nearest2d.h>

#include <array>
#include <tuple>
#include <utility>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/convolution_kernels.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

namespace {

// [n, in, l] -> [n, out, l']; weight [out, in/groups, kernel], bias [out]
Forward conv1d(const Attributes& attributes) {
  return [padding = integer(attributes, "padding"), stride = integer(attributes, "stride"),
          dilation = integer(attributes, "dilation"), groups = integer(attributes, "groups")](
             TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    const at::Tensor &x = inputs[0], &weight = weights[0],
                     bias = weights.size() > 1 ? weights[1] : at::Tensor();
    if (overruns(x, weight, stride, padding))
      return {at::conv1d(positions_read(x, weight, stride), weight, bias, 1, padding, dilation, groups)};
    return {at::conv1d(x, weight, bias, stride, padding, dilation, groups)};
  };
}

// [n, in, h, w] -> [n, out, h', w']; weight [out, in/groups, height, width], bias [out]
Convolution convolution(const Attributes& attributes) {
  return {.padding = {integer(attributes, "padding"), integer(attributes, "padding_width")},
          .stride = integer(attributes, "stride"),
          .dilation = integer(attributes, "dilation"),
          .groups = integer(attributes, "groups")};
}

/// What LibTorch gets of `x`; `c` loses its stride where that may not be.
at::Tensor kept_clear(Convolution& c, const at::Tensor& x, const at::Tensor& weight) {
  if (!overruns(x, weight, c.stride, c.padding)) return x;
  return positions_read(x, weight, std::exchange(c.stride, 1));
}

at::Tensor convolve(Convolution c, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor read = kept_clear(c, x, weight);
  return at::conv2d(read, weight, bias, c.stride, c.padding, c.dilation, c.groups);
}

Forward conv2d(const Attributes& attributes) {
  return
      [c = convolution(attributes)](TensorSpan inputs, TensorSpan weights, LayerContext& context) -> Tensors {
        const at::Tensor &x = inputs[0], &weight = weights[0],
                         bias = weights.size() > 1 ? weights[1] : at::Tensor();
        save(context, {x});
        if (forward_is_product(c, x, weight)) return {convolve_by_product(c, x, weight, bias)};
        return {convolve(c, x, weight, bias)};
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

/// The weight's and, if wanted, the bias's.
std::pair<at::Tensor, at::Tensor> weight_gradients(Convolution c, const at::Tensor& gradient,
                                                   const at::Tensor& x, const at::Tensor& weight, bool bias) {
  const at::Tensor read = kept_clear(c, x, weight);
  auto [input, by_weight, by_bias] = gradients(c, gradient, read, weight, {false, true, bias});
  return {std::move(by_weight), std::move(by_bias)};
}

std::optional<WrittenBackward> conv2d_backward(const Attributes& attributes) {
  const Convolution c = convolution(attributes);
  return WrittenBackward{
      .inputs = [c](Tensors& saved, TensorSpan weights, const at::Tensor& gradient) -> Tensors {
        if (input_gradient_is_product(c, saved[0], weights[0]))
          return {input_gradient_by_product(c, gradient, saved[0], weights[0])};
        return {std::get<0>(gradients(c, gradient, saved[0], weights[0], {true, false, false}))};
      },
      .weights =
          [c](Tensors& saved, TensorSpan weights, const at::Tensor& gradient, WeightSums& sums) {
            const bool bias = sums.size() > 1 && sums.wants(1);
            if (!sums.wants(0)) return sums.add(1, gradient.sum({0, 2, 3}));
            if (weight_gradient_is_product(c, saved[0], weights[0])) {
              add_weight_gradient_by_product(c, gradient, saved[0], weights[0], sums);
              if (bias) sums.add(1, gradient.sum({0, 2, 3}));
              return;
            }
            auto [by_weight, by_bias] = weight_gradients(c, gradient, saved[0], weights[0], bias);
            sums.add(0, std::move(by_weight));
            if (bias) sums.add(1, std::move(by_bias));
          }};
}

// [n, in, h, w] -> [n, out, h', w']; weight [in, out/groups, kernel, kernel], bias [out]
Forward conv_transpose2d(const Attributes& attributes) {
  return [padding = integer(attributes, "padding"), stride = integer(attributes, "stride"),
          more = integer(attributes, "output_padding"), groups = integer(attributes, "groups")](
             TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    const at::Tensor &x = inputs[0], &weight = weights[0],
                     bias = weights.size() > 1 ? weights[1] : at::Tensor();
    const TransposedConvolution c{stride, padding, more, groups};
    if (transposed_overruns(c, x, weight)) return {convolve_transposed(c, x, weight, bias)};
    return {at::conv_transpose2d(x, weight, bias, stride, padding, more, groups)};
  };
}

// Those below: [n, c, h, w] -> [n, c, h', w']

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

constexpr std::array kConvolutionRows{
    Row{"conv1d", conv1d, initialise_by_fan_in},
    Row{"conv2d", conv2d, initialise_by_fan_in, conv2d_backward},
    Row{"conv_transpose2d", conv_transpose2d, initialise_by_fan_in},
    Row{.name = "max_pool2d", .bind = max_pool2d, .backward = max_pool2d_backward},
    Row{.name = "avg_pool2d", .bind = avg_pool2d, .backward = avg_pool2d_backward},
    Row{"upsample_nearest2d", upsample_nearest2d},
    Row{"upsample_bilinear2d", upsample_bilinear2d},
};

}  // namespace

std::span<const Row> convolution_rows() { return kConvolutionRows; }

}  // namespace pp::model::ops
