#include "libprofile/model/ops/normalisation.h"

#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rms_norm.h>

#include <array>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

namespace {

/// Of a norm's gradients: the input's, and those of weight and bias that are trained.
std::array<bool, 3> wanted(TensorSpan weights) {
  return {true, weights[0].requires_grad(), weights[1].requires_grad()};
}

/// By the statistics of the micro-batch, which are left in the context.
at::Tensor normalised_by_batch(const at::Tensor& x, TensorSpan weights, double eps, LayerContext& context) {
  const std::int64_t count = x.numel() / x.size(1);
  if (count < 2) {
    throw Error(ErrorKind::run, "batch norm: micro-batch " + std::to_string(context.key.micro_batch) +
                                    " has 1 value per channel; lower micro_batches");
  }
  const auto [y, mean, inverse_deviation] =
      at::native_batch_norm(x, weights[0], weights[1], {}, {}, /*training=*/true, /*momentum=*/0, eps);
  if (context.statistics != nullptr) {
    context.statistics->push_back({.layer = context.layer,
                                   .buffer = context.first_buffer,
                                   .count = count,
                                   .mean = mean.detach(),
                                   .inverse_deviation = inverse_deviation.detach()});
  }
  save(context, {x, mean, inverse_deviation});
  return y;
}

at::Tensor normalised_by_buffers(const at::Tensor& x, TensorSpan weights, double eps, TensorSpan buffers) {
  if (buffers.size() < 2) throw Error(ErrorKind::internal, "batch norm: evaluation without running statistics");
  return std::get<0>(at::native_batch_norm(x, weights[0], weights[1], buffers[0], buffers[1],
                                           /*training=*/false, /*momentum=*/0, eps));
}

// [n, c, h, w] -> the same; weight, bias, running_mean, running_var [c]. Training normalises with the
// statistics of the micro-batch and never touches the running ones.
Forward batch_norm2d(const Attributes& attributes) {
  return [eps = number(attributes, "eps")](TensorSpan inputs, TensorSpan weights,
                                           LayerContext& context) -> Tensors {
    const bool training = context.mode == Mode::training;
    return {training ? normalised_by_batch(inputs[0], weights, eps, context)
                     : normalised_by_buffers(inputs[0], weights, eps, context.buffers)};
  };
}

std::optional<WrittenBackward> batch_norm_backward(const Attributes& attributes) {
  return WrittenBackward{.both = [eps = number(attributes, "eps")](TensorSpan saved, TensorSpan weights,
                                                                   const at::Tensor& gradient) -> Tensors {
    auto [x, weight, bias] =
        at::native_batch_norm_backward(gradient, saved[0], weights[0], {}, {}, saved[1], saved[2],
                                       /*train=*/true, eps, wanted(weights));
    return {x, weight, bias};
  }};
}

// [n, c] or [n, c, l] -> the same, as batch_norm2d
Forward batch_norm1d(const Attributes& attributes) { return batch_norm2d(attributes); }

// [n, c, ...] -> the same, over groups of channels of each sample; weight, bias [c]
Forward group_norm(const Attributes& attributes) {
  return [eps = number(attributes, "eps"), groups = integer(attributes, "num_groups")](
             TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    return {at::group_norm(inputs[0], groups, weights[0], weights[1], eps)};
  };
}

// [n, c, h, w] -> the same, by the statistics of each sample's channels, in evaluation too
Forward instance_norm2d(const Attributes& attributes) {
  return unary([eps = number(attributes, "eps")](const at::Tensor& x) {
    return at::instance_norm(x, {}, {}, {}, {}, /*use_input_stats=*/true, /*momentum=*/0, eps,
                             /*cudnn_enabled=*/false);
  });
}

// [n, ..., d] -> the same, normalised over the last dimension; weight, bias [d]
Forward layer_norm(const Attributes& attributes) {
  return [eps = number(attributes, "eps")](TensorSpan inputs, TensorSpan weights,
                                           LayerContext& context) -> Tensors {
    const auto [y, mean, inverse_deviation] =
        at::native_layer_norm(inputs[0], weights[0].sizes(), weights[0], weights[1], eps);
    save(context, {inputs[0], mean, inverse_deviation});
    return {y};
  };
}
std::optional<WrittenBackward> layer_norm_backward(const Attributes& /*attributes*/) {
  return WrittenBackward{.both = [](TensorSpan saved, TensorSpan weights,
                                    const at::Tensor& gradient) -> Tensors {
    auto [x, weight, bias] = at::native_layer_norm_backward(gradient, saved[0], weights[0].sizes(), saved[1],
                                                            saved[2], weights[0], weights[1], wanted(weights));
    return {x, weight, bias};
  }};
}

// [n, ..., d] -> the same, over the root of the mean square of the last dimension, times weight + offset;
// weight [d]. On a GPU by one kernel, under autocast by what LibTorch makes of wide weights.
Forward rms_norm(const Attributes& attributes) {
  return [eps = number(attributes, "eps"), offset = number(attributes, "offset")](
             TensorSpan inputs, TensorSpan weights, LayerContext& context) -> Tensors {
    const at::Tensor x = once(inputs[0]);
    if (x.is_cpu()) {
      const at::Tensor inverse = inverse_root_mean_square(x, eps);
      save(context, {inputs[0], inverse});
      return {scaled_rows(x, inverse, weights[0], offset)};
    }
    const at::Tensor weight = offset == 0.0 ? weights[0] : weights[0].add(offset);
    if (context.saved == nullptr) return {at::rms_norm(x, weight.sizes(), weight, eps)};
    const auto [y, inverse] = at::_fused_rms_norm(x, weight.sizes(), weight, eps);
    save(context, {inputs[0], inverse});
    return {y};
  };
}
std::optional<WrittenBackward> rms_norm_backward(const Attributes& attributes) {
  return WrittenBackward{
      .both = [offset = number(attributes, "offset")](TensorSpan saved, TensorSpan weights,
                                                      const at::Tensor& gradient) -> Tensors {
        if (gradient.is_cpu()) {
          const auto [x, weight] = scaled_rows_backward(gradient, saved[0], saved[1], weights[0], offset);
          return {x, weight};
        }
        const at::Tensor weight = offset == 0.0 ? weights[0] : weights[0].add(offset);
        const auto [x, of_weight] = at::_fused_rms_norm_backward(gradient, saved[0], weight.sizes(), saved[1],
                                                                 weight, {true, weights[0].requires_grad()});
        return {x, of_weight};
      }};
}

// [n, c, h, w] -> the same. alpha times the mean over `size` channels, zeros beyond the first and the last:
// Krizhevsky et al., ImageNet classification with deep convolutional neural networks, 2012, sec. 3.3, with
// torch.nn's alpha (the paper's times size).
Forward local_response_norm(const Attributes& attributes) {
  return unary([size = integer(attributes, "size"), alpha = number(attributes, "alpha"),
                beta = number(attributes, "beta"), k = number(attributes, "k")](const at::Tensor& input) {
    const at::Tensor x = once(input);
    const at::Tensor squares =
        at::constant_pad_nd(x.square().flatten(2), {0, 0, size / 2, (size - 1) / 2});  // [n, c + size - 1, h w]
    const at::Tensor means = at::avg_pool2d(squares, {size, 1}, /*stride=*/1).view(x.sizes());
    return x.div(means.mul(alpha).add(k).pow(beta));
  });
}

constexpr std::array kNormalisationRows{
    Row{"batch_norm1d", batch_norm1d, initialise_norm, batch_norm_backward},
    Row{"batch_norm2d", batch_norm2d, initialise_norm, batch_norm_backward},
    Row{"group_norm", group_norm, initialise_norm},
    Row{"instance_norm2d", instance_norm2d},
    Row{"layer_norm", layer_norm, initialise_norm, layer_norm_backward},
    Row{"rms_norm", rms_norm, initialise_norm, rms_norm_backward},
    Row{"local_response_norm", local_response_norm},
};

}  // namespace

std::span<const Row> normalisation_rows() { return kNormalisationRows; }

at::ScalarType wide(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf ? at::kFloat : x.scalar_type();
}

at::Tensor inverse_root_mean_square(const at::Tensor& x, double eps) {
  const at::Tensor length = at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, /*keepdim=*/true, wide(x));
  return length.square().div(static_cast<double>(x.size(-1))).add(eps).rsqrt();
}

// With `inverse` wide, x * inverse is.
at::Tensor scaled_rows(const at::Tensor& x, const at::Tensor& inverse, const at::Tensor& weight,
                       double offset) {
  const at::Tensor unit = x.to(wide(x)).mul(inverse);
  if (offset == 0.0) return unit.to(x.scalar_type()).mul(weight);
  return unit.mul(weight.to(wide(x)).add(offset)).to(x.scalar_type());
}

// y = u w with u = x r and r = (x.x / d + eps)^(-1/2): the gradient of x is r (g w - u (g w . u) / d).
std::pair<at::Tensor, at::Tensor> scaled_rows_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                       const at::Tensor& inverse, const at::Tensor& weight,
                                                       double offset) {
  const at::Tensor factor = offset == 0.0 ? weight.to(wide(x)) : weight.to(wide(x)).add(offset);
  const at::Tensor unit = x.to(wide(x)).mul(inverse), g = gradient.to(wide(x));
  const at::Tensor by_unit = g.mul(unit);  // [..., d]
  const at::Tensor along = at::matmul(by_unit, factor).div_(static_cast<double>(x.size(-1))).unsqueeze(-1);
  at::Tensor of_x = g.mul(factor).sub_(unit.mul_(along)).mul_(inverse);
  return {of_x.to(x.scalar_type()), by_unit.flatten(0, -2).sum(0).to(weight.scalar_type())};
}

}  // namespace pp::model::ops
