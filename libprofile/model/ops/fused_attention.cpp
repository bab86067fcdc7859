#include "libprofile/model/ops/fused_attention.h"

#include <ATen/SDPBackend.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <optional>
#include <tuple>

#include "libprofile/core/error.h"

namespace pp::model::ops {
namespace {

enum class FusedKernel { cpu, flash, memory_efficient };

constexpr double kNoDropout = 0;
constexpr std::int64_t kAlignment = 8;      // of the width: others are padded by scaled_dot_product_attention
constexpr std::int64_t kMostOfFlash = 192;  // of the width, whose backward every card has

/// [n, groups, k, d] -> [n, heads, k, d]
at::Tensor for_each_head(const at::Tensor& x, std::int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.unsqueeze(2).expand({-1, -1, heads / x.size(1), -1, -1}).flatten(1, 2);
}

/// Its backward.
at::Tensor summed_by_group(const at::Tensor& gradient, std::int64_t groups) {
  if (gradient.size(1) == groups) return gradient;
  return gradient.unflatten(1, {groups, -1}).sum(2);
}

at::SDPBackend choice_for(const Attending& a, const at::Tensor& keys, const at::Tensor& values) {
  return static_cast<at::SDPBackend>(at::_fused_sdp_choice(a.queries, keys, values, std::nullopt, kNoDropout,
                                                           a.causal, a.factor,
                                                           /*enable_gqa=*/keys.size(1) != a.queries.size(1)));
}

std::optional<FusedKernel> kernel_for(const Attending& a) {
  const std::int64_t width = a.queries.size(3);
  if (width != a.values.size(3)) return std::nullopt;
  if (a.queries.is_cpu()) return FusedKernel::cpu;
  if (a.mask.defined() || width % kAlignment != 0 || a.queries.size(2) != a.keys.size(2)) return std::nullopt;
  if (at::autocast::is_autocast_enabled(a.queries.device().type())) return std::nullopt;
  at::SDPBackend choice = choice_for(a, a.keys, a.values);
  // Keys of groups are for FlashAttention alone; repeated they are as the queries.
  if (choice == at::SDPBackend::math && a.keys.size(1) != a.queries.size(1))
    choice = choice_for(a, a.queries, a.queries);
  if (choice == at::SDPBackend::flash_attention && width <= kMostOfFlash) return FusedKernel::flash;
  if (choice == at::SDPBackend::efficient_attention) return FusedKernel::memory_efficient;
  return std::nullopt;
}

FusedKernel certain_kernel(const Attending& a) {
  if (const auto kernel = kernel_for(a)) return *kernel;
  throw Error(ErrorKind::internal, "attention: no fused kernel takes these heads");
}

}  // namespace

bool can_fuse(const Attending& attending) { return kernel_for(attending).has_value(); }

Fused attend_fused(const Attending& a) {
  const FusedKernel kernel = certain_kernel(a);
  Fused fused;
  if (kernel == FusedKernel::cpu) {
    std::tie(fused.mixed, fused.log_sum_exp) = at::_scaled_dot_product_flash_attention_for_cpu(
        a.queries, a.keys, a.values, kNoDropout, a.causal, optional_mask(a.mask), a.factor);
  } else if (kernel == FusedKernel::flash) {
    auto [mixed, log_sum_exp, first_queries, first_keys, queries, keys, seed, offset, scores] =
        at::_scaled_dot_product_flash_attention(a.queries, a.keys, a.values, kNoDropout, a.causal,
                                                /*return_debug_mask=*/false, a.factor);
    fused = {mixed, log_sum_exp, seed, offset};
  } else {
    const std::int64_t heads = a.queries.size(1);
    auto [mixed, log_sum_exp, seed, offset] = at::_scaled_dot_product_efficient_attention(
        a.queries, for_each_head(a.keys, heads), for_each_head(a.values, heads), std::nullopt,
        /*compute_log_sumexp=*/true, kNoDropout, a.causal, a.factor);
    fused = {mixed, log_sum_exp, seed, offset};
  }
  return fused;
}

std::array<at::Tensor, 3> fused_backward(const Attending& a, const Fused& fused, const at::Tensor& gradient) {
  const FusedKernel kernel = certain_kernel(a);
  if (kernel == FusedKernel::cpu) {
    auto [queries, keys, values] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, a.queries, a.keys, a.values, fused.mixed, fused.log_sum_exp, kNoDropout, a.causal,
        optional_mask(a.mask), a.factor);
    return {queries, keys, values};
  }
  if (kernel == FusedKernel::flash) {
    auto [queries, keys, values] = at::_scaled_dot_product_flash_attention_backward(
        gradient, a.queries, a.keys, a.values, fused.mixed, fused.log_sum_exp, /*cum_seq_q=*/{},
        /*cum_seq_k=*/{}, a.queries.size(2), a.keys.size(2), kNoDropout, a.causal, fused.seed, fused.offset,
        a.factor);
    return {queries, keys, values};
  }
  const std::int64_t heads = a.queries.size(1), groups = a.keys.size(1);
  auto [queries, keys, values, bias] = at::_scaled_dot_product_efficient_attention_backward(
      gradient, a.queries, for_each_head(a.keys, heads), for_each_head(a.values, heads), /*attn_bias=*/{},
      fused.mixed, fused.log_sum_exp, fused.seed, fused.offset, kNoDropout,
      /*grad_input_mask=*/{true, true, true, false}, a.causal, a.factor);
  return {queries, summed_by_group(keys, groups), summed_by_group(values, groups)};
}

}  // namespace pp::model::ops
