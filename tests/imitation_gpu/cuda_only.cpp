#include "tests/imitation_gpu/cuda_only.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <numeric>
#include <vector>

namespace pp::test::gpu {

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& from_input,
                                                         const at::Tensor& from_hidden, const at::Tensor& cell,
                                                         const std::optional<at::Tensor>& input_bias,
                                                         const std::optional<at::Tensor>& hidden_bias) {
  at::Tensor gates = from_input + from_hidden;
  for (const std::optional<at::Tensor>& bias : {input_bias, hidden_bias}) {
    if (bias && bias->defined()) gates = gates + *bias;
  }
  const std::vector<at::Tensor> four = gates.chunk(4, 1);
  const at::Tensor in = four[0].sigmoid(), forget = four[1].sigmoid(), update = four[2].tanh(),
                   out = four[3].sigmoid();
  const at::Tensor next = forget * cell + in * update;
  return {out * next.tanh(), next, at::cat({in, forget, update, out}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const std::optional<at::Tensor>& grad_hidden,
                                                                  const std::optional<at::Tensor>& grad_cell,
                                                                  const at::Tensor& cell,
                                                                  const at::Tensor& next,
                                                                  const at::Tensor& workspace, bool has_bias) {
  const std::vector<at::Tensor> four = workspace.chunk(4, 1);
  const at::Tensor &in = four[0], &forget = four[1], &update = four[2], &out = four[3];
  const at::Tensor squashed = next.tanh();
  at::Tensor to_next = at::zeros_like(next), to_out = at::zeros_like(next);
  if (grad_cell && grad_cell->defined()) to_next = to_next + *grad_cell;
  if (grad_hidden && grad_hidden->defined()) {
    to_next = to_next + *grad_hidden * out * (1 - squashed * squashed);
    to_out = *grad_hidden * squashed * out * (1 - out);
  }
  const at::Tensor gates = at::cat({to_next * update * in * (1 - in), to_next * cell * forget * (1 - forget),
                                    to_next * in * (1 - update * update), to_out},
                                   1);
  return {gates, to_next * forget, has_bias ? gates.sum(0) : at::Tensor()};
}

// With y = x r w and r = (mean(x^2) + eps)^-1/2: dx = r (g w) - x r^3 mean(g w x), dw = sum of g x r over the
// samples.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& gradient, const at::Tensor& input,
                                                     at::IntArrayRef normalized, const at::Tensor& reciprocal,
                                                     const std::optional<at::Tensor>& weight,
                                                     std::array<bool, 2> wanted) {
  std::vector<std::int64_t> inner(normalized.size());
  std::iota(inner.begin(), inner.end(), input.dim() - static_cast<std::int64_t>(inner.size()));
  const at::Tensor scaled = input * reciprocal;
  const at::Tensor to_scaled = weight && weight->defined() ? gradient * *weight : gradient;
  const at::Tensor mean = (to_scaled * scaled).mean(inner, /*keepdim=*/true);
  std::tuple<at::Tensor, at::Tensor> gradients;
  if (wanted[0]) std::get<0>(gradients) = reciprocal * (to_scaled - scaled * mean);
  if (wanted[1]) std::get<1>(gradients) = (gradient * scaled).sum_to_size(normalized);
  return gradients;
}

}  // namespace pp::test::gpu
