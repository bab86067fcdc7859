// Rows that only move elements, dimensions counted without the batch; and that of a layer of another planner's
// graph, which has edges and sizes only.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

OpResult moved(Shape shape, const TensorType& input) { return {{{std::move(shape), input.dtype}}, {}, {}, {}}; }

OpResult infer_flatten(const Attributes&, std::span<const TensorType> inputs) {
  return {{{{element_count(inputs[0].shape)}, inputs[0].dtype}}, {}, {}, {}};
}

OpResult infer_reshape(const Attributes& attributes, std::span<const TensorType> inputs) {
  Shape shape = integers(attributes, "shape");
  const auto open = std::ranges::find(shape, -1);
  if (std::ranges::count(shape, -1) > 1 || std::ranges::count(shape, 0) > 0)
    throw Error(ErrorKind::data, "shape " + to_text(shape) + " has more than one -1, or a 0");
  const std::int64_t all = element_count(inputs[0].shape);
  if (open != shape.end()) {
    *open = 1;
    if (!too_large(shape)) *open = std::max<std::int64_t>(1, all / element_count(shape));
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
  if (!each) {
    throw Error(ErrorKind::data, "dims " + to_text(dims) + " must name each dimension of " +
                                     to_text(inputs[0].shape) + " once, from 0");
  }
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

OpResult infer_concat(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::size_t dim = dimension(attributes, inputs);
  TensorType output = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    TensorType like_first = inputs[i];
    if (like_first.shape.size() == output.shape.size()) like_first.shape[dim] = inputs[0].shape[dim];
    if (like_first != inputs[0]) {
      refuse_input(i, inputs[i],
                   "the type and shape of input 0, " + to_text(inputs[0].shape) + ", except in dimension " +
                       std::to_string(dim));
    }
    output.shape[dim] += inputs[i].shape[dim];
  }
  return {{std::move(output)}, {}, {}, {}};
}

OpResult infer_pad(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::size_t dim = dimension(attributes, inputs);
  TensorType output = inputs[0];
  const std::int64_t before = integer(attributes, "before"), after = integer(attributes, "after");
  output.shape[dim] += before + after;
  if (output.shape[dim] < 1 || -before >= inputs[0].shape[dim] || -after >= inputs[0].shape[dim]) {
    throw Error(ErrorKind::data, "before " + std::to_string(before) + " and after " + std::to_string(after) +
                                     " leave nothing of dimension " + std::to_string(dim) + ", which has " +
                                     std::to_string(inputs[0].shape[dim]) + " elements; cut off less");
  }
  return {{std::move(output)}, {}, {}, {}};
}

OpResult infer_opaque(const Attributes& attributes, std::span<const TensorType>) {
  return {{{{integer(attributes, "output_bytes")}, DType::uint8}}, {}, {}, {}};
}

}  // namespace

std::vector<OpRow> shape_ops() {
  constexpr double kMaxBytes = 1LL << 40;
  constexpr int kMany = std::numeric_limits<int>::max();
  return {
      {.name = "flatten",
       .summary = "all dimensions into one",
       .shapes = "any -> [elements]",
       .flops = "0",
       .examples = {"4x6x5"},
       .input = kAny,
       .work = {.kind = OpWork::Kind::view},
       .infer = infer_flatten},
      {.name = "reshape",
       .summary = "the same elements in another shape",
       .shapes = "any -> shape, the same elements; -1 stands for what is left",
       .flops = "0",
       .examples = {"4x6 shape=2,-1,3"},
       .input = kAny,
       .attributes = {required_integers("shape", -1, kMaxSize, "sizes; -1 stands for what is left")},
       .work = {.kind = OpWork::Kind::view},
       .infer = infer_reshape},
      {.name = "permute",
       .summary = "dimensions in another order",
       .shapes = "the dimensions in the order of `dims` (counted without the batch)",
       .flops = "0",
       .examples = {"2x3x4 dims=2,0,1"},
       .input = kAny,
       .attributes = {required_integers("dims", 0, 15, "which dimension stands in each place")},
       .work = {.kind = OpWork::Kind::view},
       .infer = infer_permute},
      {.name = "slice",
       .summary = "every step-th element of a dimension from start to before end",
       .shapes = "every step-th of `dim` from start to before end",
       .flops = "0",
       .examples = {"3x7 dim=1 start=1 end=6 step=2"},
       .input = kAny,
       .attributes = {dim_attribute(), integer_attribute("start", 0, 0, kMaxSize, "the first"),
                      required_integer("end", 1, kMaxSize, "behind the last"),
                      integer_attribute("step", 1, 1, kMaxSize, "from one to the next")},
       .tensor = TensorSplit::positions,
       .work = {.kind = OpWork::Kind::view},
       .infer = infer_slice},
      {.name = "chunk",
       .summary = "a dimension in equal parts, each an output",
       .shapes = "chunks outputs, equal parts of `dim` (counted without the batch)",
       .flops = "0",
       .examples = {"3x4 chunks=2 dim=1"},
       .input = kAny,
       .attributes = {required_integer("chunks", 2, 1024, "parts; a divisor of the size"), dim_attribute()},
       .work = {.kind = OpWork::Kind::view},
       .infer = infer_chunk},
      {.name = "concat",
       .summary = "tensors one after the other along a dimension",
       .shapes = "two or more, equal but for `dim` (counted without the batch)",
       .flops = "0",
       .examples = {"2x3x3 1x3x3", "3x2 3x4 dim=1"},
       .min_inputs = 2,
       .max_inputs = kMany,
       .input = kAny,
       .attributes = {dim_attribute()},
       .tensor = TensorSplit::positions,
       .infer = infer_concat},
      {.name = "pad",
       .summary = "zeros around a dimension; negative counts cut off",
       .shapes = "zeros before and after `dim` (counted without the batch); negative counts cut off",
       .flops = "0",
       .examples = {"4x6x5 dim=1 before=-2 after=1"},
       .attributes = {dim_attribute(),
                      integer_attribute("before", 0, -kMaxSize, kMaxSize, "elements added in front"),
                      integer_attribute("after", 0, -kMaxSize, kMaxSize, "elements added behind")},
       .infer = infer_pad},
      {.name = kOpaqueOp,
       .summary = "a layer of another planner's graph, not runnable",
       .shapes = "any number -> output_bytes bytes; a layer of another planner's graph, never runnable",
       .flops = "0",
       .min_inputs = 0,
       .max_inputs = kMany,
       .input = kAny,
       .attributes = {integer_attribute("output_bytes", 0, 0, kMaxBytes, "bytes of the output per sample")},
       .runnable = false,
       .work = {.kind = OpWork::Kind::unknown},
       .infer = infer_opaque},
  };
}

}  // namespace pp::detail
