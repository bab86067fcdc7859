#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>

#include <array>
#include <cmath>
#include <vector>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/gradient_sums.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

// [n, ...] int64 -> [n, ..., width]; weight [rows, width]. Dropout takes whole rows: Merity et al.,
// Regularizing and optimizing LSTM language models, 2018, sec. 4.3.
Forward embedding(const Attributes& attributes) {
  return [probability = number(attributes, "dropout"), padding = integer(attributes, "padding_idx")](
             TensorSpan inputs, TensorSpan weights, LayerContext& context) -> Tensors {
    save(context, {inputs[0]});
    const bool drops = context.mode == Mode::training && probability > 0.0;
    const at::Tensor& table = weights[0];
    return {at::embedding(drops ? drop(table, probability, context, {table.size(0), 1}) : table, inputs[0],
                          padding)};
  };
}

/// Without dropout: it takes rows of the weight.
std::optional<WrittenBackward> embedding_backward(const Attributes& attributes) {
  if (number(attributes, "dropout") > 0.0) return std::nullopt;
  return WrittenBackward{
      .inputs = [](Tensors& /*saved*/, TensorSpan /*weights*/, const at::Tensor& /*gradient*/) -> Tensors {
        return {at::Tensor()};
      },
      .weights =
          [padding = integer(attributes, "padding_idx")](Tensors& saved, TensorSpan weights,
                                                         const at::Tensor& gradient, WeightSums& sums) {
            sums.add(0, at::embedding_dense_backward(gradient, saved[0], weights[0].size(0), padding,
                                                     /*scale_grad_by_freq=*/false));
          }};
}

/// Rows of the weight for the positions of an input [n, l, width]: [l, width], or [n, l, width] where the
/// samples stand at different positions.
at::Tensor rows_of_positions(const at::Tensor& weight, std::int64_t length, std::int64_t offset,
                             const Piece* piece) {
  if (piece == nullptr) return weight.narrow(0, offset, length);
  std::vector<at::Tensor> rows;
  for (const std::int64_t first : piece->first) rows.push_back(weight.narrow(0, offset + first, length));
  return at::stack(rows);
}

// [n, positions, width] -> the same; weight [rows, width], of which row p + offset is that of position p
Forward position_embedding(const Attributes& attributes) {
  return [offset = integer(attributes, "offset")](TensorSpan inputs, TensorSpan weights,
                                                  LayerContext& context) -> Tensors {
    return {inputs[0].add(rows_of_positions(weights[0], inputs[0].size(1), offset, context.piece))};
  };
}
std::optional<WrittenBackward> position_embedding_backward(const Attributes& attributes) {
  return WrittenBackward{
      .inputs = [](Tensors& /*saved*/, TensorSpan /*weights*/, const at::Tensor& gradient) -> Tensors {
        return {gradient};
      },
      .weights =
          [offset = integer(attributes, "offset")](Tensors& /*saved*/, TensorSpan weights,
                                                   const at::Tensor& gradient, WeightSums& sums) {
            const std::int64_t rows = weights[0].size(0), length = gradient.size(1);
            const at::Tensor sum = gradient.sum(0);
            sums.add(0,
                     rows == length ? sum : at::constant_pad_nd(sum, {0, 0, offset, rows - offset - length}));
          }};
}

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

constexpr std::array kEmbeddingRows{
    Row{"embedding", embedding, initialise_normal, embedding_backward},
    Row{"position_embedding", position_embedding, initialise_normal, position_embedding_backward},
    Row{"position_encoding", position_encoding},
};

}  // namespace

std::span<const Row> embedding_rows() { return kEmbeddingRows; }

}  // namespace pp::model::ops
