#include <ATen/core/DimVector.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>

#include <array>
#include <vector>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

// [n, ...] -> [n, elements]; shares storage with its input
Forward flatten(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return x.flatten(1); });
}

// [n, ...] -> [n, shape...]; shares storage with its input where it can
Forward reshape(const Attributes& attributes) {
  return unary([shape = integers(attributes, "shape")](const at::Tensor& x) {
    c10::SmallVector<std::int64_t, 8> sizes{x.size(0)};
    sizes.append(shape.begin(), shape.end());
    return x.reshape(sizes);
  });
}

// [n, ...] -> the same dimensions in another order
Forward permute(const Attributes& attributes) {
  std::vector<std::int64_t> dims{0};
  for (const std::int64_t dim : integers(attributes, "dims")) dims.push_back(dim + 1);
  return unary([dims](const at::Tensor& x) { return x.permute(dims); });
}

// Along dimension `dim` of a sample
Forward slice(const Attributes& attributes) {
  return unary([dim = integer(attributes, "dim") + 1, start = integer(attributes, "start"),
                end = integer(attributes, "end"), step = integer(attributes, "step")](const at::Tensor& x) {
    return x.slice(dim, start, end, step);
  });
}

// Along dimension `dim` of a sample: `chunks` outputs of one size
Forward chunk(const Attributes& attributes) {
  return [dim = integer(attributes, "dim") + 1, chunks = integer(attributes, "chunks")](
             TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
    Tensors parts;
    for (const at::Tensor& part : inputs[0].chunk(chunks, dim)) parts.push_back(part);
    return parts;
  };
}

// Along dimension `dim` of a sample: for 0, [n, c0, ...], [n, c1, ...] -> [n, c0 + c1, ...]
Forward concat(const Attributes& attributes) {
  return [dim = integer(attributes, "dim") + 1](TensorSpan inputs, TensorSpan /*weights*/,
                                                LayerContext& /*context*/) -> Tensors {
    return {at::cat(at::TensorList(inputs.data(), inputs.size()), dim)};
  };
}

// Along dimension `dim` of a sample: for 0, [n, k, ...] -> [n, before + k + after, ...]
Forward pad(const Attributes& attributes) {
  return unary([dim = integer(attributes, "dim"), before = integer(attributes, "before"),
                after = integer(attributes, "after")](const at::Tensor& x) {
    const std::int64_t behind = x.dim() - 2 - dim;                  // dimensions after `dim`
    at::DimVector widths(2 * static_cast<std::size_t>(behind), 0);  // from the last dimension on
    widths.append({before, after});
    return at::constant_pad_nd(x, widths, 0);
  });
}

constexpr std::array kShapeRows{
    Row{"flatten", flatten}, Row{"reshape", reshape}, Row{"permute", permute}, Row{"slice", slice},
    Row{"chunk", chunk},     Row{"concat", concat},   Row{"pad", pad},
};

}  // namespace

std::span<const Row> shape_rows() { return kShapeRows; }

}  // namespace pp::model::ops
