// Operations that LibTorch has for CUDA only, from operations that a CPU has, too.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <array>
#include <optional>
#include <tuple>

namespace pp::test::gpu {

/// aten::_thnn_fused_lstm_cell: hidden state, cell state, and the gates behind their functions as workspace.
/// Gates are input, forget, update and output, side by side.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& from_input,
                                                         const at::Tensor& from_hidden, const at::Tensor& cell,
                                                         const std::optional<at::Tensor>& input_bias,
                                                         const std::optional<at::Tensor>& hidden_bias);

/// Its backward, aten::_thnn_fused_lstm_cell_backward_impl: gradients of the gates before their functions, of
/// the old cell state, of the biases. `next` is the new cell state.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const std::optional<at::Tensor>& grad_hidden,
                                                                  const std::optional<at::Tensor>& grad_cell,
                                                                  const at::Tensor& cell,
                                                                  const at::Tensor& next,
                                                                  const at::Tensor& workspace, bool has_bias);

/// aten::_fused_rms_norm_backward: gradients of the input and of the weight, those that `wanted` says.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& gradient, const at::Tensor& input,
                                                     at::IntArrayRef normalized, const at::Tensor& reciprocal,
                                                     const std::optional<at::Tensor>& weight,
                                                     std::array<bool, 2> wanted);

/// aten::_fused_sdp_choice, as a card of today chooses without a mask: FlashAttention of half types, the
/// memory-efficient kernel of float32 where keys are not shared by several heads, else the scores in full.
std::int64_t attention_choice(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                              const std::optional<at::Tensor>& mask, double dropout, bool causal,
                              std::optional<double> factor, bool grouped);

/// aten::_scaled_dot_product_efficient_attention without mask and dropout: the result, the logarithms of the
/// sums of the scores' exponentials, what only dropout needs.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_attention(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const std::optional<at::Tensor>& mask, bool log_sum_exp, double dropout, bool causal,
    std::optional<double> factor);

/// aten::_scaled_dot_product_efficient_attention_backward: gradients of queries, keys and values; none of the
/// mask.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_attention_backward(
    const at::Tensor& gradient, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const at::Tensor& mask, const at::Tensor& mixed, const at::Tensor& log_sum_exp, const at::Tensor& seed,
    const at::Tensor& offset, double dropout, std::array<bool, 4> wanted, bool causal,
    std::optional<double> factor);

/// aten::_scaled_dot_product_flash_attention without dropout: the result, the logarithms of the sums of the
/// scores' exponentials; the others say what only variable lengths and dropout have.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor,
           at::Tensor>
flash_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, double dropout,
                bool causal, bool debug_mask, std::optional<double> factor);

/// aten::_scaled_dot_product_flash_attention_backward: gradients of queries, keys and values.
std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& gradient, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const at::Tensor& mixed, const at::Tensor& log_sum_exp, const at::Tensor& first_queries,
    const at::Tensor& first_keys, c10::SymInt most_queries, c10::SymInt most_keys, double dropout, bool causal,
    const at::Tensor& seed, const at::Tensor& offset, std::optional<double> factor);

}  // namespace pp::test::gpu
