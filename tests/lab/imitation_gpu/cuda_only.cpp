#include "tests/lab/imitation_gpu/cuda_only.h"

#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <c10/util/Exception.h>

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
  const at::ScalarType type = input.scalar_type();  // sums are in float32 where it is a half type
  if (wanted[0]) std::get<0>(gradients) = (reciprocal * (to_scaled - scaled * mean)).to(type);
  if (wanted[1]) std::get<1>(gradients) = (gradient * scaled).sum_to_size(normalized).to(type);
  return gradients;
}

std::int64_t attention_choice(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& /*values*/,
                              const std::optional<at::Tensor>& mask, double /*dropout*/, bool /*causal*/,
                              std::optional<double> /*factor*/, bool /*grouped*/) {
  at::SDPBackend choice = at::SDPBackend::math;
  if (queries.element_size() == 2) {
    choice = at::SDPBackend::flash_attention;
  } else if (queries.scalar_type() == at::kFloat && keys.size(1) == queries.size(1)) {
    choice = at::SDPBackend::efficient_attention;
  }
  return static_cast<std::int64_t>(mask && mask->defined() ? at::SDPBackend::math : choice);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_attention(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const std::optional<at::Tensor>& mask, bool log_sum_exp, double dropout, bool causal,
    std::optional<double> factor) {
  TORCH_CHECK(keys.size(1) == queries.size(1), "memory-efficient attention: keys for each head");
  TORCH_CHECK(log_sum_exp && !mask, "memory-efficient attention: a mask, or no backward");
  const auto [mixed, sums] = at::_scaled_dot_product_flash_attention_for_cpu(queries, keys, values, dropout,
                                                                             causal, /*attn_mask=*/{}, factor);
  return {mixed, sums, at::zeros({}, at::kLong), at::zeros({}, at::kLong)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_attention_backward(
    const at::Tensor& gradient, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const at::Tensor& /*mask*/, const at::Tensor& mixed, const at::Tensor& log_sum_exp, const at::Tensor& seed,
    const at::Tensor& offset, double dropout, std::array<bool, 4> /*wanted*/, bool causal,
    std::optional<double> factor) {
  TORCH_CHECK(seed.defined() && offset.defined(), "attention: the forward's seed and offset are missing");
  const auto [of_queries, of_keys, of_values] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, queries, keys, values, mixed, log_sum_exp, dropout, causal, /*attn_mask=*/{}, factor);
  return {of_queries, of_keys, of_values, at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor,
           at::Tensor>
flash_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, double dropout,
                bool causal, bool /*debug_mask*/, std::optional<double> factor) {
  const auto [mixed, log_sum_exp] = at::_scaled_dot_product_flash_attention_for_cpu(
      queries, keys, values, dropout, causal, /*attn_mask=*/{}, factor);
  const at::Tensor state = at::zeros({2}, at::kLong), none = at::zeros({}, at::kLong);
  return {mixed, log_sum_exp, {}, {}, queries.size(2), keys.size(2), state, none, at::empty({0})};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& gradient, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const at::Tensor& mixed, const at::Tensor& log_sum_exp, const at::Tensor& /*first_queries*/,
    const at::Tensor& /*first_keys*/, c10::SymInt /*most_queries*/, c10::SymInt /*most_keys*/, double dropout,
    bool causal, const at::Tensor& seed, const at::Tensor& offset, std::optional<double> factor) {
  TORCH_CHECK(seed.defined() && offset.defined(), "attention: the forward's seed and offset are missing");
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, queries, keys, values, mixed,
                                                                  log_sum_exp, dropout, causal,
                                                                  /*attn_mask=*/{}, factor);
}

}  // namespace pp::test::gpu
