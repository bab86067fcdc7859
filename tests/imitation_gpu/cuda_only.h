// Operations that LibTorch has for CUDA only, from operations that a CPU has, too.
#pragma once

#include <ATen/core/Tensor.h>

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

}  // namespace pp::test::gpu
