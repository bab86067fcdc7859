// Rows of recurrence.
#include <algorithm>
#include <string>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

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

/// Four gates, the cell and its tanh per unit, position, layer and direction. On a CPU oneDNN keeps the
/// workspace of its backward: 15 elements in their place, 6 more for what an input is wider than the state; and
/// its output lies the other way round than ours.
OpInside lstm_inside(const Attributes& attributes, std::span<const TensorType> inputs) {
  const double directions = boolean(attributes, "bidirectional") ? 2 : 1, length = real(inputs[0].shape[0]);
  const double hidden = real(integer(attributes, "hidden_size"));
  double width = real(inputs[0].shape[1]), kept = 0, on_cpu = 0;
  for (std::int64_t layer = 0; layer < integer(attributes, "num_layers"); ++layer) {
    kept += 6 * directions * length * hidden;
    on_cpu +=
        directions * (5 * length * hidden + (length + 1) * (11 * hidden + 6 * std::max(0.0, width - hidden)));
    width = directions * hidden;
  }
  return {.kept = kept, .kept_on_cpu = on_cpu - kept, .moved = kept};
}

}  // namespace

std::vector<OpRow> recurrent_ops() {
  return {
      {.name = "lstm",
       .summary = "long short-term memory from zero states",
       .shapes = "[l, d] -> [l, hidden_size], twice as wide with two directions; from zero states",
       .flops = "l (8 h (d + h) + 9 h, + 8 h with bias) per layer and direction, h = hidden_size",
       .examples = {"4x3 hidden_size=2",
                    "3x2 hidden_size=2 num_layers=2 bidirectional=true dropout=0.3 weight_dropout=0.3",
                    "3x2 hidden_size=2 num_layers=2 bias=false"},
       .input = kSequence,
       .attributes = {required_integer("hidden_size", 1, kMaxSize / 8,
                                       "features of the hidden state, per direction"),
                      integer_attribute("num_layers", 1, 1, 1000, "layers on top of each other"),
                      flag_attribute("bidirectional", false,
                                     "a second pass from the end, side by side with the first"),
                      flag_attribute("bias", true, "add two biases per gate"),
                      probability_attribute("dropout", 0.0, "probability, between layers, in training"),
                      probability_attribute("weight_dropout", 0.0,
                                            "probability, on the hidden-to-hidden weights, in training")},
       .draws = true,
       .weight_gradient_with_input = true,
       .work = {.kind = OpWork::Kind::products, .keeps = OpWork::Keeps::inputs, .inside = lstm_inside},
       .infer = infer_lstm},
  };
}

}  // namespace pp::detail
