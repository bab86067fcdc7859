// Rows of the op table for sequences, [positions, width]: embeddings, positions, norms over the width, softmax,
// recurrence.
#include <string>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

constexpr const char* kSequence = "two dimensions, [positions, width]";

OpResult infer_embedding(const Attributes& attributes, std::span<const TensorType> inputs) {
  if (inputs[0].dtype != DType::int64) refuse_input(0, inputs[0], "int64 indices");
  const std::int64_t width = integer(attributes, "embedding_dim");
  TensorType output{inputs[0].shape, DType::float32};
  output.shape.push_back(width);
  return {{output}, {{"weight", {integer(attributes, "num_embeddings"), width}}}, {}, {}};
}

OpResult infer_position_embedding(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 2, kSequence);
  return {{inputs[0]}, {{"weight", inputs[0].shape}}, {}, Flops(elements(inputs[0]))};
}

/// The table of sines is counted as given.
OpResult infer_position_encoding(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 2, kSequence);
  if (inputs[0].shape[1] % 2 != 0)
    refuse_input(0, inputs[0], "an even width, a sine and a cosine per frequency");
  return {{inputs[0]}, {}, {}, Flops(elements(inputs[0]))};
}

OpResult infer_layer_norm(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_last_dimension(inputs, "[..., width]");
  const Shape width{inputs[0].shape.back()};
  // As batch_norm2d: mean 1, variance 3, normalise and scale 4.
  return {{inputs[0]}, {{"weight", width}, {"bias", width}}, {}, Flops(8.0 * elements(inputs[0]))};
}

OpResult infer_rms_norm(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_last_dimension(inputs, "[..., width]");
  // Square and sum 2, normalise and scale 2.
  return {{inputs[0]}, {{"weight", {inputs[0].shape.back()}}}, {}, Flops(4.0 * elements(inputs[0]))};
}

OpResult infer_softmax(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_last_dimension(inputs, "[..., width]");
  // Maximum, subtract, exponential, sum, divide.
  return {{inputs[0]}, {}, {}, Flops(5.0 * elements(inputs[0]))};
}

/// Parameters of one direction of one layer, named as in PyTorch.
void add_lstm_parameters(OpResult& result, std::int64_t inputs, std::int64_t hidden, bool bias,
                         const std::string& suffix) {
  result.parameters.push_back({"weight_ih" + suffix, {4 * hidden, inputs}});
  result.parameters.push_back({"weight_hh" + suffix, {4 * hidden, hidden}});
  if (!bias) return;
  result.parameters.push_back({"bias_ih" + suffix, {4 * hidden}});
  result.parameters.push_back({"bias_hh" + suffix, {4 * hidden}});
}

OpResult infer_lstm(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 2, kSequence);
  const std::int64_t hidden = integer(attributes, "hidden_size");
  const bool bias = boolean(attributes, "bias"), both = boolean(attributes, "bidirectional");
  const std::int64_t directions = both ? 2 : 1;
  const auto length = static_cast<double>(inputs[0].shape[0]), h = static_cast<double>(hidden);
  OpResult result{{{{inputs[0].shape[0], directions * hidden}, inputs[0].dtype}}, {}, {}, {}};
  std::int64_t width = inputs[0].shape[1];
  double per_position = 0;
  for (std::int64_t layer = 0; layer < integer(attributes, "num_layers"); ++layer) {
    const std::string suffix = "_l" + std::to_string(layer);
    add_lstm_parameters(result, width, hidden, bias, suffix);
    if (both) add_lstm_parameters(result, width, hidden, bias, suffix + "_reverse");
    // Four gates; then per unit four functions, three operations for the cell, two for the output.
    const double gates = 8.0 * h * (static_cast<double>(width) + h) + (bias ? 8.0 * h : 0.0);
    per_position += static_cast<double>(directions) * (gates + 9.0 * h);
    width = directions * hidden;
  }
  result.forward_flops = Flops(length * per_position);
  return result;
}

OpResult infer_locked_dropout(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 2, kSequence);
  return {{inputs[0]}, {}, {}, Flops(elements(inputs[0]))};
}

}  // namespace

std::vector<OpRow> sequence_ops() {
  return {
      {"embedding",
       "row of a table for each int64 index",
       1,
       1,
       {required_integer("num_embeddings", 1, 1 << 30, "rows of the table"),
        required_integer("embedding_dim", 1, kMaxSize, "width of a row"),
        number_attribute("dropout", 0.0, 0, 0.99, "probability, on whole rows of the table, in training")},
       infer_embedding},
      {"position_embedding", "adds a learned vector per position", 1, 1, {}, infer_position_embedding},
      {"position_encoding", "adds sines and cosines of the position", 1, 1, {}, infer_position_encoding},
      {"layer_norm",
       "normalises the last dimension",
       1,
       1,
       {number_attribute("eps", 1e-5, 0, 1, "added to the variance")},
       infer_layer_norm},
      {"rms_norm",
       "divides by the root of the mean square of the last dimension",
       1,
       1,
       {number_attribute("eps", 1e-6, 0, 1, "added to the mean square")},
       infer_rms_norm},
      {"lstm",
       "long short-term memory from zero states",
       1,
       1,
       {required_integer("hidden_size", 1, kMaxSize / 8, "features of the hidden state, per direction"),
        integer_attribute("num_layers", 1, 1, 1000, "layers on top of each other"),
        flag_attribute("bidirectional", false, "a second pass from the end, side by side with the first"),
        flag_attribute("bias", true, "add two biases per gate"),
        number_attribute("dropout", 0.0, 0, 0.99, "probability, between layers, in training"),
        number_attribute("weight_dropout", 0.0, 0, 0.99,
                         "probability, on the hidden-to-hidden weights, in training")},
       infer_lstm},
      {"locked_dropout",
       "dropout with one mask for all positions of a sample",
       1,
       1,
       {number_attribute("p", 0.5, 0, 0.99, "probability")},
       infer_locked_dropout},
      {"softmax", "exp(x) / sum exp(x) over the last dimension", 1, 1, {}, infer_softmax},
  };
}

}  // namespace pp::detail
