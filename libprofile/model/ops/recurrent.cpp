#include <ATen/ops/lstm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <array>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

/// Of one layer, both directions: the hidden-to-hidden weights in training without what weight dropout takes.
/// `weights`: per direction weight_ih, weight_hh and with biases bias_ih, bias_hh.
Tensors layer_weights(TensorSpan weights, std::size_t per_direction, double weight_dropout,
                      LayerContext& context) {
  Tensors all(weights.begin(), weights.end());
  if (context.mode == Mode::evaluation || weight_dropout == 0.0) return all;
  for (std::size_t i = 1; i < all.size(); i += per_direction) all[i] = drop(all[i], weight_dropout, context);
  return all;
}

// [n, l, d] -> [n, l, directions * hidden], as torch.nn.LSTM with batch_first and zero initial states; per
// layer and direction weight_ih [4 hidden, in], weight_hh [4 hidden, hidden], bias_ih and bias_hh [4 hidden].
// Layer by layer, so that dropout can draw from our generator. Weight dropout: Merity et al., Regularizing and
// optimizing LSTM language models, 2018, sec. 2.
Forward lstm(const Attributes& attributes) {
  return [bias = boolean(attributes, "bias"), both = boolean(attributes, "bidirectional"),
          hidden_size = integer(attributes, "hidden_size"), dropout = number(attributes, "dropout"),
          weight_dropout = number(attributes, "weight_dropout")](TensorSpan inputs, TensorSpan weights,
                                                                 LayerContext& context) -> Tensors {
    at::Tensor x = inputs[0];
    const std::size_t per_direction = bias ? 4 : 2;
    const std::size_t per_layer = per_direction * (both ? 2 : 1);
    const bool training = context.mode == Mode::training;
    // Without gradients oneDNN takes another kernel, which rounds differently: a forward that is run again
    // before its backward would differ from that run.
    const c10::AutoGradMode kernel_of_training(training || c10::GradMode::is_enabled());
    const at::Tensor zero = at::zeros({both ? 2 : 1, x.size(0), hidden_size}, x.options().requires_grad(false));
    for (std::size_t first = 0; first < weights.size(); first += per_layer) {
      if (first > 0 && training && dropout > 0.0) x = drop(x, dropout, context);
      const Tensors own =
          layer_weights(weights.subspan(first, per_layer), per_direction, weight_dropout, context);
      x = std::get<0>(at::lstm(x, {zero, zero}, own, bias, /*num_layers=*/1, /*dropout=*/0.0, training, both,
                               /*batch_first=*/true));
    }
    return {x};
  };
}

constexpr std::array kRecurrentRows{
    Row{"lstm", lstm, initialise_lstm},
};

}  // namespace

std::span<const Row> recurrent_rows() { return kRecurrentRows; }

}  // namespace pp::model::ops
