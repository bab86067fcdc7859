// The losses: prediction and target to a scalar, the mean over the samples (and positions) of a micro-batch.
#include <string>

#include "libprofile/core/op_rows.h"

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

OpResult infer_mse(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  if (inputs[1].shape != inputs[0].shape)
    refuse_input(1, inputs[1], "the prediction's shape, " + to_text(inputs[0].shape));
  return {{kScalar}, {}, {}, Flops(3.0 * elements(inputs[0]))};  // subtract, multiply, add
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
      {"mse", "mean of the squared differences", 2, 2, {}, infer_mse},
  };
}

}  // namespace pp::detail
