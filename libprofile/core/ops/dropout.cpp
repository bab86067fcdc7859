// Rows that zero at random.
#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

/// `cost` operations per element.
template <int cost>
OpResult infer_dropout(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  return {{inputs[0]}, {}, {}, Flops(cost * elements(inputs[0]))};
}

OpResult infer_dropout2d(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  return {{inputs[0]}, {}, {}, Flops(elements(inputs[0]))};
}

OpResult infer_locked_dropout(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 2, kSequence);
  return {{inputs[0]}, {}, {}, Flops(elements(inputs[0]))};
}

AttributeSpec probability() { return number_attribute("p", 0.5, 0, 0.99, "probability"); }

}  // namespace

std::vector<OpRow> dropout_ops() {
  return {
      {.name = "dropout",
       .summary = "zeroes elements with probability p, scales the others",
       .shapes = "any -> the same",
       .flops = "2 per element",
       .attributes = {probability()},
       .draws = true,
       .infer = infer_dropout<2>},
      {.name = "dropout2d",
       .summary = "dropout of whole channels",
       .shapes = "[c, h, w] -> the same; takes whole channels",
       .flops = "1 per element",
       .attributes = {probability()},
       .draws = true,
       .infer = infer_dropout2d},
      {.name = "locked_dropout",
       .summary = "dropout with one mask for all positions of a sample",
       .shapes = "[l, d] -> the same; one mask for all positions",
       .flops = "1 per element",
       .attributes = {probability()},
       .draws = true,
       .infer = infer_locked_dropout},
      {.name = "stochastic_depth",
       .summary = "zeroes whole samples with probability p, scales the others",
       .shapes = "any -> the same; takes whole samples",
       .flops = "1 per element",
       .attributes = {probability()},
       .draws = true,
       .infer = infer_dropout<1>},
  };
}

}  // namespace pp::detail
