// The losses: prediction and target to a scalar, the mean over the samples (and positions) of a micro-batch.
#include <string>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

const TensorType kScalar{{}, DType::float32};

OpResult infer_cross_entropy(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs.first(1));
  const Shape& logits = inputs[0].shape;
  if (logits.empty() || logits.size() > 2)
    refuse_input(0, inputs[0], "logits, [classes] or [positions, classes]");
  const Shape labels(logits.begin(), logits.end() - 1);
  if (inputs[1].dtype != DType::int64 || inputs[1].shape != labels) {
    refuse_input(1, inputs[1], "int64 labels " + to_text(labels) + " for logits " + to_text(logits));
  }
  return {{kScalar}, {}, {}, Flops(5.0 * elements(inputs[0]))};  // a softmax
}

void require_equal_shapes(std::span<const TensorType> inputs) {
  require_floating(inputs);
  if (inputs[1].shape != inputs[0].shape)
    refuse_input(1, inputs[1], "the prediction's shape, " + to_text(inputs[0].shape));
}

OpResult infer_mse(const Attributes&, std::span<const TensorType> inputs) {
  require_equal_shapes(inputs);
  return {{kScalar}, {}, {}, Flops(3.0 * elements(inputs[0]))};  // subtract, multiply, add
}

OpResult infer_binary_cross_entropy(const Attributes&, std::span<const TensorType> inputs) {
  require_equal_shapes(inputs);
  // max(x, 0) - x t + log(1 + exp(-|x|)), and the sum
  return {{kScalar}, {}, {}, Flops(9.0 * elements(inputs[0]))};
}

OpResult infer_text_detection(const Attributes&, std::span<const TensorType> inputs) {
  require_equal_shapes(inputs);
  const Shape& maps = inputs[0].shape;
  if (maps.size() != 3 || maps[0] != 6)
    refuse_input(0, inputs[0], "[6, height, width]: score, distances to top, right, bottom, left, angle");
  // Per pixel: score 10; areas, overlap and their ratio 15; angle and weighted sums 8.
  return {{kScalar}, {}, {}, Flops(33.0 * static_cast<double>(maps[1] * maps[2]))};
}

}  // namespace

std::vector<OpRow> losses() {
  return {
      {"cross_entropy",
       "softmax and negative logarithm of the label's probability",
       2,
       2,
       {},
       infer_cross_entropy},
      {"binary_cross_entropy",
       "sigmoid and negative logarithm of the target's probability; targets between 0 and 1",
       2,
       2,
       {},
       infer_binary_cross_entropy},
      {"text_detection",
       "class-balanced cross entropy of the score, and where there is text overlap and angle of the boxes",
       2,
       2,
       {number_attribute("geometry_weight", 1, 0, 1e6, "of overlap and angle against the score"),
        number_attribute("angle_weight", 10, 0, 1e6, "of the angle against the overlap")},
       infer_text_detection},
      {"mse", "mean of the squared differences", 2, 2, {}, infer_mse},
  };
}

}  // namespace pp::detail
