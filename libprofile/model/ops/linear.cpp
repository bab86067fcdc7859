#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <c10/util/DimVector.h>

#include <array>

#include "libprofile/model/gradient_sums.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

// Sizes as a GPU's tensor cores want them: cuBLAS has fast kernels for half types where sides are multiples of
// eight and rows begin at multiples of 16 bytes; a vocabulary of 50,257 has neither.
constexpr std::int64_t kSide = 8;
constexpr std::int64_t kLeastElements = 1 << 18;  // below, a launch more costs more than a slow kernel

/// How many columns a matrix [rows, columns] of this type and device lacks to the next such side; 0 also where
/// a copy would cost more than it brings.
std::int64_t missing_columns(std::int64_t rows, std::int64_t columns, const at::TensorOptions& options) {
  if (!options.device().is_cuda() || options.dtype().itemsize() != 2 || rows * columns < kLeastElements)
    return 0;
  return (kSide - columns % kSide) % kSide;
}

/// With `more` columns or rows of zeros behind the others; 0: `matrix` itself.
at::Tensor with_columns(const at::Tensor& matrix, std::int64_t more) {
  return more == 0 ? matrix : at::constant_pad_nd(matrix, {0, more});
}
at::Tensor with_rows(const at::Tensor& matrix, std::int64_t more) {
  return more == 0 ? matrix : at::constant_pad_nd(matrix, {0, 0, 0, more});
}

/// [..., width] -> [all others, width]
at::Tensor rows(const at::Tensor& x) { return x.flatten(0, -2); }

c10::DimVector with_width(const at::Tensor& x, std::int64_t width) {
  c10::DimVector sizes(x.sizes());  // allocates nothing
  sizes.back() = width;
  return sizes;
}

/// Of the outputs, and of their gradients.
std::int64_t missing_columns_of(const at::Tensor& x, std::int64_t columns) {
  return missing_columns(x.numel() / x.size(-1), columns, x.options());
}

/// [..., in], [out, in] -> [..., out], by way of `more` outputs that are 0.
at::Tensor aligned_product(const at::Tensor& x, const at::Tensor& weight, std::int64_t more) {
  const at::Tensor y = rows(x).mm(with_rows(weight, more).t());
  return y.narrow(1, 0, weight.size(0)).contiguous().view(with_width(x, weight.size(0)));
}

/// [..., out] -> [all others, out], whose rows begin where tensor cores want them.
at::Tensor aligned_rows(const at::Tensor& gradient) {
  const std::int64_t width = gradient.size(-1), more = missing_columns_of(gradient, width);
  return more == 0 ? rows(gradient) : with_columns(rows(gradient), more).narrow(1, 0, width);
}

std::optional<WrittenBackward> linear_backward(const Attributes& /*attributes*/) {
  return WrittenBackward{
      .inputs = [](Tensors& /*saved*/, TensorSpan weights, const at::Tensor& gradient) -> Tensors {
        const std::int64_t more = missing_columns_of(gradient, gradient.size(-1));
        return {with_columns(rows(gradient), more)
                    .mm(with_rows(weights[0], more))
                    .view(with_width(gradient, weights[0].size(1)))};
      },
      .weights =
          [](Tensors& saved, TensorSpan /*weights*/, const at::Tensor& gradient, WeightSums& sums) {
            const at::Tensor by_row = aligned_rows(gradient);
            if (sums.wants(0)) sums.add_product(0, by_row.t(), rows(saved[0]));
            if (sums.size() > 1 && sums.wants(1)) sums.add(1, by_row.sum(0));
          }};
}

// [n, ..., in] -> [n, ..., out]; weight [out, in], bias [out]
Forward linear(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan weights, LayerContext& context) -> Tensors {
    save(context, weights[0].requires_grad() ? Tensors{inputs[0]} : Tensors{});
    const bool plain = !at::GradMode::is_enabled() && inputs[0].scalar_type() == weights[0].scalar_type();
    const std::int64_t more = plain ? missing_columns_of(inputs[0], weights[0].size(0)) : 0;
    if (more > 0) {
      at::Tensor y = aligned_product(inputs[0], weights[0], more);
      return {weights.size() > 1 ? y.add_(weights[1]) : y};
    }
    return {at::linear(inputs[0], weights[0], weights.size() > 1 ? weights[1] : at::Tensor())};
  };
}

// [n, ..., width] -> the same; bias [width]
Forward bias(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    return {inputs[0].add(weights[0])};
  };
}
std::optional<WrittenBackward> bias_backward(const Attributes& /*attributes*/) {
  return WrittenBackward{.inputs = [](Tensors& /*saved*/, TensorSpan /*weights*/,
                                      const at::Tensor& gradient) -> Tensors { return {gradient}; },
                         .weights = [](Tensors& /*saved*/, TensorSpan /*weights*/, const at::Tensor& gradient,
                                       WeightSums& sums) { sums.add(0, rows(gradient).sum(0)); }};
}

// [n, ..., rows, inner], [n, ..., inner, columns] -> [n, ..., rows, columns]
Forward matmul(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
    return {at::matmul(inputs[0], inputs[1])};
  };
}

constexpr std::array kLinearRows{
    Row{.name = "linear", .bind = linear, .initialise = initialise_by_fan_in, .backward = linear_backward},
    Row{"bias", bias, initialise_zero, bias_backward},
    Row{"matmul", matmul},
};

}  // namespace

std::span<const Row> linear_rows() { return kLinearRows; }

}  // namespace pp::model::ops
