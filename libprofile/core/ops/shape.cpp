// Rows of the op table that only move elements, and the products of tensors: reshape, permute, slice, chunk,
// matmul, scaled_dot_product_attention. Dimensions are counted without the batch.
#include <algorithm>
#include <string>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

OpResult moved(Shape shape, const TensorType& input) { return {{{std::move(shape), input.dtype}}, {}, {}, {}}; }

OpResult infer_reshape(const Attributes& attributes, std::span<const TensorType> inputs) {
  Shape shape = integers(attributes, "shape");
  const auto open = std::ranges::find(shape, -1);
  if (std::ranges::count(shape, -1) > 1 || std::ranges::count(shape, 0) > 0)
    throw Error(ErrorKind::data, "shape " + to_text(shape) + " has more than one -1, or a 0");
  const std::int64_t all = element_count(inputs[0].shape);
  if (open != shape.end()) {
    *open = 1;
    const Shape rest = shape;
    *open = too_large(rest) ? 1 : std::max<std::int64_t>(1, all / element_count(rest));
  }
  if (too_large(shape) || element_count(shape) != all) {
    throw Error(ErrorKind::data, "shape " + to_text(integers(attributes, "shape")) + " does not hold the " +
                                     std::to_string(all) + " elements of " + to_text(inputs[0].shape));
  }
  return moved(std::move(shape), inputs[0]);
}

OpResult infer_permute(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::vector<std::int64_t>& dims = integers(attributes, "dims");
  std::vector<std::int64_t> sorted = dims;
  std::ranges::sort(sorted);
  bool each = sorted.size() == inputs[0].shape.size();
  for (std::size_t d = 0; d < sorted.size(); ++d) each = each && sorted[d] == static_cast<std::int64_t>(d);
  if (!each)
    throw Error(ErrorKind::data, "dims " + to_text(dims) + " must name each dimension of " +
                                     to_text(inputs[0].shape) + " once, from 0");
  Shape shape;
  for (const std::int64_t d : dims) shape.push_back(inputs[0].shape[static_cast<std::size_t>(d)]);
  return moved(std::move(shape), inputs[0]);
}

OpResult infer_slice(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::size_t dim = dimension(attributes, inputs);
  const std::int64_t start = integer(attributes, "start"), end = integer(attributes, "end"),
                     step = integer(attributes, "step");
  if (end <= start || end > inputs[0].shape[dim]) {
    throw Error(ErrorKind::data, "end " + std::to_string(end) + " must be above start, " +
                                     std::to_string(start) + ", and at most the size, " +
                                     std::to_string(inputs[0].shape[dim]));
  }
  Shape shape = inputs[0].shape;
  shape[dim] = (end - start + step - 1) / step;
  return moved(std::move(shape), inputs[0]);
}

OpResult infer_chunk(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::size_t dim = dimension(attributes, inputs);
  const std::int64_t chunks = integer(attributes, "chunks"), size = inputs[0].shape[dim];
  if (size % chunks != 0) {
    throw Error(ErrorKind::data, "chunks " + std::to_string(chunks) + " must divide dimension " +
                                     std::to_string(dim) + ", which has " + std::to_string(size));
  }
  TensorType part = inputs[0];
  part.shape[dim] = size / chunks;
  return {std::vector<TensorType>(static_cast<std::size_t>(chunks), part), {}, {}, {}};
}

double real(std::int64_t value) { return static_cast<double>(value); }

/// All dimensions but the last two.
Shape leading(const Shape& shape) { return {shape.begin(), shape.end() - 2}; }

OpResult infer_matmul(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  if (a.size() < 2) refuse_input(0, inputs[0], "[..., rows, inner]");
  const bool fits = b.size() == a.size() && leading(a) == leading(b) && b[b.size() - 2] == a.back();
  if (!fits || inputs[1].dtype != inputs[0].dtype)
    refuse_input(1, inputs[1],
                 "[..., inner, columns] for " + to_text(a) + ", with its leading dimensions and type");
  TensorType output = inputs[0];
  output.shape.back() = b.back();
  const Flops flops(2.0 * elements(output) * real(a.back()));
  return {{std::move(output)}, {}, {}, flops};
}

OpResult infer_attention(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  const Shape &q = inputs[0].shape, &k = inputs[1].shape, &v = inputs[2].shape;
  if (q.size() < 2) refuse_input(0, inputs[0], "queries, [..., positions, width]");
  if (k.size() != q.size() || leading(k) != leading(q) || k.back() != q.back())
    refuse_input(1, inputs[1], "keys, [..., positions, width] for queries " + to_text(q));
  if (v.size() != q.size() || leading(v) != leading(q) || v[v.size() - 2] != k[k.size() - 2])
    refuse_input(2, inputs[2], "values, [..., positions, width] for keys " + to_text(k));
  TensorType output = inputs[0];
  output.shape.back() = v.back();
  // Two products and the softmax; a causal mask does not lower the count.
  const double pairs = elements({leading(q)}) * real(q[q.size() - 2]) * real(k[k.size() - 2]);
  return {{std::move(output)}, {}, {}, Flops(pairs * (2.0 * real(q.back()) + 2.0 * real(v.back()) + 5.0))};
}

}  // namespace

std::vector<OpRow> shape_ops() {
  return {
      {"reshape",
       "the same elements in another shape",
       1,
       1,
       {required_integers("shape", -1, kMaxSize, "sizes; -1 stands for what is left")},
       infer_reshape},
      {"permute",
       "dimensions in another order",
       1,
       1,
       {required_integers("dims", 0, 15, "which dimension stands in each place")},
       infer_permute},
      {"slice",
       "every step-th element of a dimension from start to before end",
       1,
       1,
       {dim_attribute(), integer_attribute("start", 0, 0, kMaxSize, "the first"),
        required_integer("end", 1, kMaxSize, "behind the last"),
        integer_attribute("step", 1, 1, kMaxSize, "from one to the next")},
       infer_slice},
      {"chunk",
       "a dimension in equal parts, each an output",
       1,
       1,
       {required_integer("chunks", 2, 1024, "parts; a divisor of the size"), dim_attribute()},
       infer_chunk},
      {"matmul", "products of the matrices in the last two dimensions", 2, 2, {}, infer_matmul},
      {"scaled_dot_product_attention",
       "softmax(q k^T / sqrt(width)) v of queries, keys and values",
       3,
       3,
       {flag_attribute("causal", false, "a position sees itself and earlier ones only"),
        number_attribute("dropout", 0.0, 0, 0.99, "probability, on the attention weights, in training")},
       infer_attention},
  };
}

}  // namespace pp::detail
