#include "libprofile/model/ops/rotary.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pp::model::ops {

RotarySettings::RotarySettings(const Attributes& attributes)
    : dim(integer(attributes, "rotary_dim")),
      last(choice<HeadPacking>(attributes, "packing") == HeadPacking::latent),
      exponent_dim(integer(attributes, "rotary_exponent_dim") > 0 ? integer(attributes, "rotary_exponent_dim")
                                                                  : dim),
      base(number(attributes, "rotary_base")),
      interleaved(boolean(attributes, "rotary_interleaved")),
      scaling(choice<RotaryScaling>(attributes, "rotary_scaling")),
      factor(number(attributes, "rotary_factor")),
      original_length(static_cast<double>(integer(attributes, "rotary_original_length"))),
      low_freq_factor(number(attributes, "rotary_low_freq_factor")),
      high_freq_factor(number(attributes, "rotary_high_freq_factor")),
      beta_fast(number(attributes, "rotary_beta_fast")),
      beta_slow(number(attributes, "rotary_beta_slow")),
      truncate(boolean(attributes, "rotary_truncate")),
      magnitude(number(attributes, "rotary_magnitude")) {}

namespace {

// From `original_length / high_freq_factor` to `original_length / low_freq_factor` a wavelength is blended.
at::Tensor as_llama3(const RotarySettings& s, const at::Tensor& frequencies) {
  const at::Tensor wavelengths = frequencies.reciprocal().mul(2 * std::numbers::pi);
  const at::Tensor longest = wavelengths.gt(s.original_length / s.low_freq_factor);
  const at::Tensor shortest = wavelengths.lt(s.original_length / s.high_freq_factor);
  const at::Tensor scaled = at::where(longest, frequencies.div(s.factor), frequencies);
  const at::Tensor share = wavelengths.reciprocal()
                               .mul(s.original_length)
                               .sub(s.low_freq_factor)
                               .div(s.high_freq_factor - s.low_freq_factor);
  const at::Tensor blended = share.neg().add(1).mul(scaled).div(s.factor).add(share.mul(scaled));
  return at::where(longest.logical_or(shortest), scaled, blended);
}

/// The pair whose frequency makes so many turns within the original length, as a number.
double pair_of_turns(const RotarySettings& s, double turns) {
  return static_cast<double>(s.exponent_dim) * std::log(s.original_length / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(s.base));
}

// Pairs up to `low` keep their frequency, from `high` on they are divided by the factor.
at::Tensor as_yarn(const RotarySettings& s, const at::Tensor& powers) {
  double low = pair_of_turns(s, s.beta_fast), high = pair_of_turns(s, s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(s.exponent_dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor ramp = at::arange(s.dim / 2, powers.options()).sub(low).div(high - low).clamp(0, 1);
  const at::Tensor scaled = powers.mul(s.factor).reciprocal();
  return scaled.mul(ramp).add(powers.reciprocal().mul(ramp.neg().add(1)));
}

/// Of the pairs, each a view of `x`.
struct Pairs {
  at::Tensor first, second;
};
Pairs pairs_of(const RotarySettings& settings, const at::Tensor& x) {
  const std::int64_t half = settings.dim / 2, first = settings.last ? x.size(-1) - settings.dim : 0;
  if (!settings.interleaved) return {x.narrow(-1, first, half), x.narrow(-1, first + half, half)};
  const at::Tensor by_pair = x.narrow(-1, first, settings.dim).unflatten(-1, {half, 2});
  return {by_pair.select(-1, 0), by_pair.select(-1, 1)};
}

}  // namespace

at::Tensor rotary_frequencies(const RotarySettings& settings) {
  const at::TensorOptions options(at::kFloat);
  const at::Tensor exponents =
      at::arange(0, settings.dim, 2, options).div(static_cast<double>(settings.exponent_dim));
  const at::Tensor powers = at::pow(settings.base, exponents);
  if (settings.scaling == RotaryScaling::yarn) return as_yarn(settings, powers);
  const at::Tensor kept = powers.reciprocal();
  if (settings.scaling == RotaryScaling::linear) return kept.div(settings.factor);
  return settings.scaling == RotaryScaling::llama3 ? as_llama3(settings, kept) : kept;
}

RotaryTable::Rows RotaryTable::rows(std::int64_t length, const at::TensorOptions& options) {
  const std::lock_guard held(mutex_);
  const auto fits = [&](const Rows& rows) {
    return rows.cosines.device() == options.device() && rows.cosines.dtype() == options.dtype();
  };
  const auto found = std::ranges::find_if(made_, fits);
  Rows& rows = found != made_.end() ? *found : made_.emplace_back();
  if (!rows.cosines.defined() || rows.cosines.size(0) < length) {
    const at::InferenceMode no_inference(false);
    const at::AutoGradMode no_grad(false);
    const at::Tensor positions = at::arange(length, at::TensorOptions(at::kFloat)).unsqueeze(1);
    const at::Tensor angles = positions.mul(rotary_frequencies(settings_));
    const auto type = options.dtype().toScalarType();
    rows.cosines = angles.cos().mul(settings_.magnitude).to(options.device(), type);
    rows.sines = angles.sin().mul(settings_.magnitude).to(options.device(), type);
  }
  return {rows.cosines.narrow(0, 0, length), rows.sines.narrow(0, 0, length)};
}

void RotaryTable::collect(std::vector<at::Tensor>& tensors) {
  const std::lock_guard held(mutex_);
  for (const Rows& rows : made_) tensors.insert(tensors.end(), {rows.cosines, rows.sines});
}

at::Tensor turned(const RotarySettings& settings, const at::Tensor& x, const RotaryTable::Rows& rows) {
  const auto [first, second] = pairs_of(settings, x);
  const at::Tensor a = first.mul(rows.cosines).sub(second.mul(rows.sines));
  const at::Tensor b = second.mul(rows.cosines).add(first.mul(rows.sines));
  const at::Tensor rotated = settings.interleaved ? at::stack({a, b}, -1).flatten(-2) : at::cat({a, b}, -1);
  const std::int64_t others = x.size(-1) - settings.dim;
  if (others == 0) return rotated;
  if (settings.last) return at::cat({x.narrow(-1, 0, others), rotated}, -1);
  return at::cat({rotated, x.narrow(-1, settings.dim, others)}, -1);
}

void turn(const RotarySettings& settings, const at::Tensor& x, const RotaryTable::Rows& rows, Turn direction) {
  if (settings.dim == 0) return;
  const auto [first, second] = pairs_of(settings, x);
  const at::Tensor sines = direction == Turn::forth ? rows.sines : rows.sines.neg();
  const at::Tensor across = first.mul(sines);
  first.mul_(rows.cosines).sub_(second.mul(sines));
  second.mul_(rows.cosines).add_(across);
}

}  // namespace pp::model::ops
