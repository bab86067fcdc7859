#include "libprofile/model/ops/grouped_heads.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <vector>

#include "libprofile/core/ops/attributes.h"

namespace pp::model::ops {

GroupedSettings::GroupedSettings(const Attributes& attributes)
    : heads(integer(attributes, "num_heads")),
      groups(integer(attributes, "num_key_value_heads")),
      causal(boolean(attributes, "causal")),
      packing(choice<HeadPacking>(attributes, "packing")),
      turned(integer(attributes, "rotary_dim")),
      window(integer(attributes, "sliding_window")),
      scale(number(attributes, "scale")),
      soft_cap(number(attributes, "soft_cap")),
      dropout(number(attributes, "dropout")),
      norms(boolean(attributes, "norms")),
      sinks(boolean(attributes, "sinks")),
      eps(number(attributes, "norm_eps")) {}

double GroupedSettings::factor(std::int64_t width) const {
  return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(width));
}

Heads heads_of(const GroupedSettings& settings, TensorSpan inputs) {
  const std::int64_t h = settings.heads, g = settings.groups;
  if (settings.packing == HeadPacking::latent) {
    const at::Tensor queries = inputs[0].unflatten(2, {h, -1}), both = inputs[1].unflatten(2, {h, -1});
    const std::int64_t straight = queries.size(3) - settings.turned;
    const at::Tensor ends = inputs[2].unsqueeze(2).expand({-1, -1, h, -1});
    return {queries, at::cat({both.narrow(3, 0, straight), ends}, 3),
            both.narrow(3, straight, both.size(3) - straight)};
  }
  if (inputs.size() == 3)
    return {inputs[0].unflatten(2, {h, -1}), inputs[1].unflatten(2, {g, -1}), inputs[2].unflatten(2, {g, -1})};
  if (settings.packing == HeadPacking::heads) {
    const at::Tensor parts = inputs[0].unflatten(2, {h, 3, -1});
    return {parts.select(3, 0), parts.select(3, 1), parts.select(3, 2)};
  }
  const at::Tensor parts = inputs[0].unflatten(2, {h + 2 * g, -1});
  return {parts.narrow(2, 0, h), parts.narrow(2, h, g), parts.narrow(2, h + g, g)};
}

Tensors joined(const GroupedSettings& settings, const Heads& gradients, bool packed) {
  if (!packed) return {gradients.queries.flatten(2), gradients.keys.flatten(2), gradients.values.flatten(2)};
  const at::Tensor& q = gradients.queries;
  if (settings.packing == HeadPacking::latent) {
    const std::int64_t straight = q.size(3) - settings.turned;
    return {q.flatten(2), at::cat({gradients.keys.narrow(3, 0, straight), gradients.values}, 3).flatten(2),
            gradients.keys.narrow(3, straight, settings.turned).sum(2)};
  }
  const std::int64_t all = (settings.heads + 2 * settings.groups) * q.size(3);
  const at::Tensor whole = at::empty({q.size(0), q.size(1), all}, q.options());
  const Heads places = heads_of(settings, {&whole, 1});
  places.queries.copy_(q);
  places.keys.copy_(gradients.keys);
  places.values.copy_(gradients.values);
  return {whole};
}

bool is_windowed(const GroupedSettings& settings, std::int64_t length) {
  return settings.causal && settings.window > 0 && settings.window < length;
}

namespace {

/// 0 where `distance` = query - key is seen.
at::Tensor seen(const GroupedSettings& settings, const at::Tensor& distance, const at::TensorOptions& options) {
  at::Tensor hidden = distance.lt(0);
  if (settings.window > 0) hidden = hidden.logical_or(distance.ge(settings.window));
  return at::zeros(distance.sizes(), options).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

}  // namespace

at::Tensor sight_mask(const GroupedSettings& settings, std::int64_t length, const at::TensorOptions& options) {
  const at::Tensor positions = at::arange(length, options.dtype(at::kLong));
  return seen(settings, positions.unsqueeze(1).sub(positions), options);
}

at::Tensor sight_mask(const GroupedSettings& settings, const Piece& piece, std::int64_t length,
                      std::int64_t keys, const at::TensorOptions& options) {
  const at::TensorOptions whole = options.dtype(at::kLong);
  const at::Tensor first = at::tensor(piece.first, at::kLong).to(options.device()).view({-1, 1, 1, 1});
  const at::Tensor queries = first.add(at::arange(length, whole).view({-1, 1}));  // [n, 1, l, 1]
  return seen(settings, queries.sub(at::arange(keys, whole)), options);
}

at::Tensor attend_with_scores(const GroupedSettings& settings, const Heads& by_head, const at::Tensor& mask,
                              LayerContext& context) {
  const auto& [queries, keys, values, sinks] = by_head;
  const std::int64_t n = queries.size(0), h = queries.size(1), l = queries.size(2), g = keys.size(1);
  const at::Tensor rows = queries.mul(settings.factor(queries.size(3))).reshape({n, g, h / g * l, -1});
  at::Tensor scores = at::matmul(rows, keys.transpose(-2, -1));  // [n, groups, heads / groups * l, k]
  if (settings.soft_cap > 0) scores = scores.div(settings.soft_cap).tanh().mul(settings.soft_cap);
  if (mask.defined()) scores = scores.view({n, h, l, -1}).add(mask).view(scores.sizes());
  if (sinks.defined()) {
    const at::Tensor rows_of_sinks =
        sinks.to(scores.scalar_type()).view({g, h / g, 1}).expand({n, g, h / g, l});
    scores = at::cat({scores, rows_of_sinks.reshape({n, g, -1, 1})}, -1);
  }
  at::Tensor shares = at::softmax(scores, -1);
  if (sinks.defined()) shares = shares.narrow(-1, 0, keys.size(2));
  if (context.mode == Mode::training && settings.dropout > 0) shares = drop(shares, settings.dropout, context);
  return at::matmul(shares, values).view({n, h, l, -1});
}

}  // namespace pp::model::ops
