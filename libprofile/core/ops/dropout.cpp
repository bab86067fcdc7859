// Rows that zero at random.
#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

/// `cost` operations per element.
template <int cost>
OpResult infer_dropout(const Attributes&, std::span<const TensorType> inputs) {
  return {{inputs[0]}, {}, {}, Flops(cost * elements(inputs[0]))};
}

enum class Mask { elements, channels, width, sample };

/// One byte for each element of the mask. The scaled input is written and read on the way.
template <Mask mask>
OpInside mask_of(const Attributes& attributes, std::span<const TensorType> inputs) {
  const Shape& shape = inputs[0].shape;
  if (number(attributes, "p") == 0) return {};
  const double all = elements(inputs[0]);
  const double bytes = mask == Mask::elements   ? all
                       : mask == Mask::channels ? real(shape.front())
                       : mask == Mask::width    ? real(shape.back())
                                                : 1.0;
  return {.kept_bytes = bytes, .moved = 2 * all};
}

AttributeSpec probability() { return probability_attribute("p", 0.5, "probability"); }

}  // namespace

std::vector<OpRow> dropout_ops() {
  return {
      {.name = "dropout",
       .summary = "zeroes elements with probability p, scales the others",
       .shapes = "any -> the same",
       .flops = "2 per element",
       .examples = {"5x3 p=0.4"},
       .attributes = {probability()},
       .draws = true,
       .positions = Positions::apart,
       .tensor = TensorSplit::elements,
       .work = {.kernels = 3, .inside = mask_of<Mask::elements>},
       .infer = infer_dropout<2>},
      {.name = "dropout2d",
       .summary = "dropout of whole channels",
       .shapes = "[c, h, w] -> the same; takes whole channels",
       .flops = "1 per element",
       .examples = {"4x6x5 p=0.4"},
       .input = kImage,
       .attributes = {probability()},
       .draws = true,
       .work = {.kernels = 3, .inside = mask_of<Mask::channels>},
       .infer = infer_dropout<1>},
      {.name = "locked_dropout",
       .summary = "dropout with one mask for all positions of a sample",
       .shapes = "[l, d] -> the same; one mask for all positions",
       .flops = "1 per element",
       .examples = {"4x3 p=0.4"},
       .input = kSequence,
       .attributes = {probability()},
       .draws = true,
       .work = {.kernels = 3, .inside = mask_of<Mask::width>},
       .infer = infer_dropout<1>},
      {.name = "stochastic_depth",
       .summary = "zeroes whole samples with probability p, scales the others",
       .shapes = "any -> the same; takes whole samples",
       .flops = "1 per element",
       .examples = {"3x2 p=0.4"},
       .attributes = {probability()},
       .draws = true,
       .work = {.kernels = 3, .inside = mask_of<Mask::sample>},
       .infer = infer_dropout<1>},
  };
}

}  // namespace pp::detail
