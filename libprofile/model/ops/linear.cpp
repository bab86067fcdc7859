#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>

#include <cmath>

#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/ops/forward.h"
#include "libprofile/model/weight_sums.h"

namespace pp::model::ops {
namespace {

/// [..., width] -> [all others, width]
at::Tensor rows(const at::Tensor& x) { return x.flatten(0, -2); }

/// The weight, to every sample.
Tensors add_weight(TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) {
  return {inputs[0].add(weights[0])};
}

}  // namespace

// The products of autograd's, in its order and layout: the same bits.
WrittenBackward linear_backward(const Attributes& /*attributes*/) {
  return {.saves = [](TensorSpan inputs, TensorSpan /*outputs*/) -> Tensors { return {inputs[0]}; },
          .inputs = [](TensorSpan saved, TensorSpan weights, const at::Tensor& gradient) -> Tensors {
            return {rows(gradient).mm(weights[0]).view(saved[0].sizes())};
          },
          .weights =
              [](TensorSpan saved, const at::Tensor& gradient, WeightSums& sums) {
                const at::Tensor by_row = rows(gradient);
                sums.add(0, by_row.t().mm(rows(saved[0])));
                if (sums.size() > 1) sums.add(1, by_row.sum(0));
              }};
}

// [n, ..., in] -> [n, ..., out]; weight [out, in], bias [out]
Forward linear(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan weights, LayerContext& /*context*/) -> Tensors {
    return {at::linear(inputs[0], weights[0], weights.size() > 1 ? weights[1] : at::Tensor())};
  };
}

// [n, ..., width] -> the same; bias [width]
Forward bias(const Attributes& /*attributes*/) { return add_weight; }

// [n, ...] int64 -> [n, ..., width]; weight [rows, width]. Dropout takes whole rows: Merity et al.,
// Regularizing and optimizing LSTM language models, 2018, sec. 4.3.
Forward embedding(const Attributes& attributes) {
  return [probability = number(attributes, "dropout")](TensorSpan inputs, TensorSpan weights,
                                                       LayerContext& context) -> Tensors {
    if (context.mode == Mode::evaluation || probability == 0.0) return {at::embedding(weights[0], inputs[0])};
    return {at::embedding(drop(weights[0], probability, context, {weights[0].size(0), 1}), inputs[0])};
  };
}

// [n, positions, width] -> the same; weight [positions, width], added to every sample
Forward position_embedding(const Attributes& /*attributes*/) { return add_weight; }

// [n, positions, width] -> the same, plus sin and cos of p / 10000^(2i/width) in columns 2i and 2i+1 of
// position p: Vaswani et al., Attention is all you need, 2017, sec. 3.5.
Forward position_encoding(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) {
    const at::TensorOptions wide = x.options().dtype(at::kDouble).requires_grad(false);
    const auto width = static_cast<double>(x.size(2));
    const at::Tensor frequencies = at::arange(0, x.size(2), 2, wide).mul(-std::log(10000.0) / width).exp();
    const at::Tensor angles =
        at::arange(x.size(1), wide).unsqueeze(1).mul(frequencies);  // [positions, width / 2]
    const at::Tensor table = at::stack({at::sin(angles), at::cos(angles)}, 2).flatten(1);
    return x.add(table.to(x.scalar_type()));
  });
}

}  // namespace pp::model::ops
