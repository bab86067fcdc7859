// The losses: prediction and target to a scalar, the mean over the samples (and positions) of a micro-batch, or
// over those that count (libprofile/core/model/counted_labels.h).
#include <string>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

const TensorType kScalar{{}, DType::float32};

/// Of logits: the last dimension, of images the first.
std::size_t class_dimension(const Shape& logits) { return logits.size() == 3 ? 0 : logits.size() - 1; }

OpResult infer_cross_entropy(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs.first(1));
  const Shape& logits = inputs[0].shape;
  if (logits.empty() || logits.size() > 3)
    refuse_input(0, inputs[0], "logits, [classes], [positions, classes] or [classes, height, width]");
  Shape labels = logits;
  labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(class_dimension(logits)));
  if (inputs[1].dtype != DType::int64 || inputs[1].shape != labels) {
    refuse_input(1, inputs[1], "int64 labels " + to_text(labels) + " for logits " + to_text(logits));
  }
  return {{kScalar}, {}, {}, Flops(5.0 * elements(inputs[0]))};  // a softmax
}

AttributeSpec ignore_index() {
  constexpr double kMost = 2147483647;
  return silent(integer_attribute("ignore_index", -100, -kMost, kMost, "labels of this value do not count"));
}

/// Of the labels: as many as there are logits.
std::int64_t classes(const Attributes&, std::span<const TensorType> inputs, std::size_t input) {
  return input == 1 ? inputs[0].shape[class_dimension(inputs[0].shape)] : 0;
}

void require_equal_shapes(std::span<const TensorType> inputs) {
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

/// Logarithms of the probabilities.
OpInside shares_inside(const Attributes&, std::span<const TensorType> inputs) {
  return {.kept = elements(inputs[0]), .moved = 2 * elements(inputs[0])};
}

}  // namespace

std::vector<OpRow> losses() {
  return {
      {.name = "cross_entropy",
       .summary =
           "softmax and negative logarithm of the label's probability, mean over the labels that are not "
           "ignore_index",
       .shapes = "[classes] with int64 [], [l, classes] with int64 [l], or [classes, h, w] with int64 [h, w]",
       .flops = "5 per logit",
       .min_inputs = 2,
       .max_inputs = 2,
       .input = kAny,
       .attributes = {ignore_index(),
                      silent(number_attribute("label_smoothing", 0, 0, 1,
                                              "share of the target that all classes have alike"))},
       .tensor = TensorSplit::classes,
       .index_limit = classes,
       .work = {.kernels = 2, .inside = shares_inside},
       .infer = infer_cross_entropy},
      {.name = "binary_cross_entropy",
       .summary = "sigmoid and negative logarithm of the target's probability, mean over samples and elements; "
                  "targets are brought between 0 and 1",
       .shapes = "logits and probabilities of one shape",
       .flops = "9 per element",
       .min_inputs = 2,
       .max_inputs = 2,
       .work = {.keeps = OpWork::Keeps::inputs, .kernels = 4},
       .infer = infer_binary_cross_entropy},
      {.name = "text_detection",
       .summary = "mean over samples of the class-balanced cross entropy of the score + geometry_weight (-log "
                  "of the boxes' overlap + angle_weight (1 - cos of the angle's error)), the geometry over the "
                  "pixels with text",
       .shapes = "two of [6, h, w]: score, distances to top, right, bottom and left, angle",
       .flops = "33 per pixel",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {number_attribute("geometry_weight", 1, 0, 1e6, "of overlap and angle against the score"),
                      number_attribute("angle_weight", 10, 0, 1e6, "of the angle against the overlap")},
       .work = {.keeps = OpWork::Keeps::inputs, .kernels = 40},
       .infer = infer_text_detection},
      {.name = "mse",
       .summary = "mean of the squared differences over samples and elements",
       .shapes = "two of one shape",
       .flops = "3 per element",
       .min_inputs = 2,
       .max_inputs = 2,
       .work = {.keeps = OpWork::Keeps::inputs, .kernels = 2},
       .infer = infer_mse},
  };
}

}  // namespace pp::detail
