#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <c10/util/DimVector.h>

#include <array>

#include "libprofile/model/ops/forward.h"
#include "libprofile/model/weight_sums.h"

namespace pp::model::ops {
namespace {

/// [..., width] -> [all others, width]
at::Tensor rows(const at::Tensor& x) { return x.flatten(0, -2); }

std::optional<WrittenBackward> linear_backward(const Attributes& /*attributes*/) {
  return WrittenBackward{
      .inputs = [](Tensors& /*saved*/, TensorSpan weights, const at::Tensor& gradient) -> Tensors {
        c10::DimVector sizes(gradient.sizes());  // allocates nothing
        sizes.back() = weights[0].size(1);
        return {rows(gradient).mm(weights[0]).view(sizes)};
      },
      .weights =
          [](Tensors& saved, TensorSpan /*weights*/, const at::Tensor& gradient, WeightSums& sums) {
            const at::Tensor by_row = rows(gradient);
            if (sums.wants(0)) sums.add_product(0, by_row.t(), rows(saved[0]));
            if (sums.size() > 1 && sums.wants(1)) sums.add(1, by_row.sum(0));
          }};
}

// [n, ..., in] -> [n, ..., out]; weight [out, in], bias [out]
Forward linear(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan weights, LayerContext& context) -> Tensors {
    save(context, weights[0].requires_grad() ? Tensors{inputs[0]} : Tensors{});
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

constexpr std::array kRows{
    Row{.name = "linear", .bind = linear, .initialise = initialise_by_fan_in, .backward = linear_backward},
    Row{"bias", bias, initialise_zero, bias_backward},
    Row{"matmul", matmul},
};

}  // namespace

std::span<const Row> linear_rows() { return kRows; }

}  // namespace pp::model::ops
