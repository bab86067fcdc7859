#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>

#include <array>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/gradient_sums.h"
#include "libprofile/model/ops/attention.h"

namespace pp::model::ops {
namespace {

struct SelfAttention {
  AttentionSettings settings;
  bool causal;
  std::int64_t max_distance;

  explicit SelfAttention(const Attributes& attributes)
      : settings(attributes),
        causal(boolean(attributes, "causal")),
        max_distance(integer(attributes, "max_distance")) {}
};

/// [n, s, d] -> [n s, d]
at::Tensor rows(const at::Tensor& x) { return x.flatten(0, 1); }

/// What the backward of the products needs, by the places in which the forward saves it.
enum SavedAttention : std::size_t { kInput, kProjected, kMixed, kLogSumExp, kSeed, kOffset, kForward };
/// Once the input gradient is known, in place of them; the input stays where it is.
enum Left : std::size_t { kProjectedGradient = 1, kJoined, kBackward };

/// Queries, keys and values side by side, [n, s, 3d].
Attending attending_of(const SelfAttention& layer, const at::Tensor& projected) {
  const at::Tensor parts = split_heads(projected, 3, layer.settings.heads);
  return {parts[0], parts[1], parts[2], layer.causal, attention_factor(layer.settings, parts[0])};
}

/// [n, s, 3d] -> [n, heads, s, width]; saves for backward. `x` is undefined where the projection's weight is
/// frozen.
at::Tensor attend_and_save(const SelfAttention& layer, const at::Tensor& x, const at::Tensor& projected,
                           Tensors& saved) {
  const Fused fused = attend_fused(attending_of(layer, projected));
  saved = {x, projected, fused.mixed, fused.log_sum_exp, fused.seed, fused.offset};
  return fused.mixed;
}

/// From the gradient of the output to that of the projected input, [n, s, 3d]. Leaves what the weights' need.
void back_to_projected(const SelfAttention& layer, const at::Tensor& out_projection, const at::Tensor& gradient,
                       Tensors& saved) {
  const std::int64_t heads = layer.settings.heads;
  const Fused fused{saved[kMixed], saved[kLogSumExp], saved[kSeed], saved[kOffset]};
  const at::Tensor joined = rows(gradient).mm(out_projection).view(gradient.sizes());
  const std::array<at::Tensor, 3> by_part =
      fused_backward(attending_of(layer, saved[kProjected]), fused, split_heads(joined, 1, heads)[0]);
  const at::Tensor projected = at::empty_like(saved[kProjected]);
  const at::Tensor places = split_heads(projected, 3, heads);
  for (std::size_t part = 0; part < by_part.size(); ++part)
    places[static_cast<std::int64_t>(part)].copy_(by_part[part]);
  saved = {saved[kInput], projected, joined_heads(saved[kMixed])};
}

}  // namespace

// Self-attention as torch.nn.MultiheadAttention with batch_first: [n, s, d], with a bias by relative position
// also [n, buckets, heads] -> [n, s, d].
Forward self_attention(const Attributes& attributes) {
  return [layer = SelfAttention(attributes)](TensorSpan inputs, TensorSpan weights,
                                             LayerContext& context) -> Tensors {
    const at::Tensor& x = inputs[0];
    const Projections projection = projections(layer.settings, weights);
    const at::Tensor projected = at::linear(x, projection.in, projection.in_bias);
    at::Tensor mixed;
    if (context.saved != nullptr) {
      mixed = attend_and_save(layer, weights[0].requires_grad() ? x : at::Tensor(), projected, *context.saved);
    } else {
      const Sight sight = layer.causal ? Sight::backward : Sight::both_sides;
      const at::Tensor bias =
          inputs.size() > 1 ? position_bias(inputs[1], x.size(1), layer.max_distance, sight) : at::Tensor();
      const at::Tensor parts = split_heads(projected, 3, layer.settings.heads);
      mixed = attend(layer.settings, parts[0], parts[1], parts[2], bias, layer.causal, context);
    }
    return {at::linear(joined_heads(mixed), projection.out, projection.out_bias)};
  };
}

std::optional<WrittenBackward> self_attention_backward(const Attributes& attributes) {
  const SelfAttention layer(attributes);
  if (layer.settings.dropout > 0.0) return std::nullopt;
  return WrittenBackward{
      .inputs = [layer](Tensors& saved, TensorSpan weights, const at::Tensor& gradient) -> Tensors {
        const Projections projection = projections(layer.settings, weights);
        back_to_projected(layer, projection.out, gradient, saved);
        return {rows(saved[kProjectedGradient]).mm(projection.in).view(gradient.sizes())};
      },
      .weights =
          [layer](Tensors& saved, TensorSpan weights, const at::Tensor& gradient, WeightSums& sums) {
            if (saved.size() == kForward)
              back_to_projected(layer, projections(layer.settings, weights).out, gradient, saved);
            const at::Tensor projected = rows(saved[kProjectedGradient]), by_row = rows(gradient);
            const std::size_t out = layer.settings.bias ? 2 : 1;
            if (sums.wants(0)) sums.add_product(0, projected.t(), rows(saved[kInput]));
            sums.add_product(out, by_row.t(), rows(saved[kJoined]));
            if (!layer.settings.bias) return;
            sums.add(1, projected.sum(0));
            sums.add(out + 1, by_row.sum(0));
          },
      .applies =
          [layer](TensorSpan inputs) {
            if (inputs.size() != 1) return false;
            const at::Tensor heads = split_heads(inputs[0], 1, layer.settings.heads)[0];
            return can_fuse({heads, heads, heads, layer.causal});
          }};
}

}  // namespace pp::model::ops
