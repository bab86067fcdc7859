// Rows of the op table for sequences, [positions, width]: embeddings, layer norm, attention, softmax.
#include <string>

#include "libprofile/core/op_rows.h"

namespace pp::detail {
namespace {

OpResult infer_embedding(const Attributes& attributes, std::span<const TensorType> inputs) {
  if (inputs[0].dtype != DType::int64) refuse_input(0, inputs[0], "int64 indices");
  const std::int64_t width = integer(attributes, "embedding_dim");
  TensorType output{inputs[0].shape, DType::float32};
  output.shape.push_back(width);
  return {{output}, {{"weight", {integer(attributes, "num_embeddings"), width}}}, {}, {}};
}

OpResult infer_position_embedding(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 2, "two dimensions, [positions, width]");
  return {{inputs[0]}, {{"weight", inputs[0].shape}}, {}, Flops(elements(inputs[0]))};
}

OpResult infer_layer_norm(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  if (inputs[0].shape.empty()) refuse_input(0, inputs[0], "at least one dimension, [..., width]");
  const Shape width{inputs[0].shape.back()};
  // As batch_norm2d: mean 1, variance 3, normalise and scale 4.
  return {{inputs[0]}, {{"weight", width}, {"bias", width}}, {}, Flops(8.0 * elements(inputs[0]))};
}

OpResult infer_softmax(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  if (inputs[0].shape.empty()) refuse_input(0, inputs[0], "at least one dimension, [..., width]");
  // Maximum, subtract, exponential, sum, divide.
  return {{inputs[0]}, {}, {}, Flops(5.0 * elements(inputs[0]))};
}

OpResult infer_attention(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 2, "two dimensions, [positions, width]");
  const std::int64_t width = inputs[0].shape[1];
  const std::int64_t heads = integer(attributes, "num_heads");
  if (width % heads != 0) {
    throw Error(ErrorKind::data,
                "num_heads " + std::to_string(heads) + " must divide the width, " + std::to_string(width));
  }
  const bool bias = boolean(attributes, "bias");
  OpResult result{{inputs[0]}, {{"in_proj_weight", {3 * width, width}}}, {}, {}};
  if (bias) result.parameters.push_back({"in_proj_bias", {3 * width}});
  result.parameters.push_back({"out_proj.weight", {width, width}});
  if (bias) result.parameters.push_back({"out_proj.bias", {width}});

  const auto l = static_cast<double>(inputs[0].shape[0]);
  const auto w = static_cast<double>(width);
  const double projections = 2.0 * l * w * 4.0 * w + (bias ? 4.0 * l * w : 0.0);
  const double products =
      2.0 * (2.0 * l * l * w);  // scores, weighted sum; a causal mask does not lower the count
  result.forward_flops = Flops(projections + products + 5.0 * static_cast<double>(heads) * l * l);
  return result;
}

}  // namespace

std::vector<OpRow> sequence_ops() {
  return {
      {"embedding",
       "row of a table for each int64 index",
       1,
       1,
       {required_integer("num_embeddings", 1, 1 << 30, "rows of the table"),
        required_integer("embedding_dim", 1, kMaxSize, "width of a row")},
       infer_embedding},
      {"position_embedding", "adds a learned vector per position", 1, 1, {}, infer_position_embedding},
      {"layer_norm",
       "normalises the last dimension",
       1,
       1,
       {number_attribute("eps", 1e-5, 0, 1, "added to the variance")},
       infer_layer_norm},
      {"multi_head_attention",
       "self attention with input and output projection",
       1,
       1,
       {required_integer("num_heads", 1, kMaxSize, "heads; a divisor of the width"),
        flag_attribute("causal", false, "a position sees itself and earlier ones only"),
        number_attribute("dropout", 0.0, 0, 0.99, "probability, on the attention weights, in training"),
        flag_attribute("bias", true, "add a bias in both projections")},
       infer_attention},
      {"softmax", "exp(x) / sum exp(x) over the last dimension", 1, 1, {}, infer_softmax},
  };
}

}  // namespace pp::detail
