// Attention of projected queries, keys and values: Ainslie et al., GQA: training generalized multi-query
// transformer models from multi-head checkpoints, 2023. Where a fused kernel takes the heads the backward is
// written: it keeps rotated queries and keys, values, the result and a number for each query and head, and no
// scores. Caps of the scores, dropout, and on a GPU windows go through autograd. Sinks (Xiao et al., Efficient
// streaming language models with attention sinks, 2024, learned as in OpenAI's gpt-oss, 2025) are one more
// score in every softmax. The kernels know nothing of them, but make shares and their gradients again from the
// saved sums and results, so that their backward is right once these have the sinks in them.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/model/ops/attention.h"
#include "libprofile/model/ops/forward.h"
#include "libprofile/model/ops/grouped_heads.h"
#include "libprofile/model/ops/normalisation.h"
#include "libprofile/model/ops/rotary.h"

namespace pp::model::ops {
namespace {

/// Where all samples of the piece stand; none: at different positions.
std::optional<std::int64_t> common_first(const Piece& piece) {
  const bool common = std::ranges::count(piece.first, piece.first.front()) == std::ssize(piece.first);
  return common ? std::optional(piece.first.front()) : std::nullopt;
}

struct GroupedAttention {
  GroupedSettings settings;
  std::shared_ptr<RotaryTable> rotary;

  explicit GroupedAttention(const Attributes& attributes)
      : settings(attributes), rotary(std::make_shared<RotaryTable>(RotarySettings(attributes))) {}

  bool rotates() const { return rotary->settings().dim > 0; }
  /// [l, 1, dim / 2]; of a piece whose samples stand at different positions [n, l, 1, dim / 2].
  RotaryTable::Rows rows(const at::Tensor& x, const Piece* piece) const {
    const std::int64_t length = x.size(1);
    if (piece == nullptr) {
      const RotaryTable::Rows all = rotary->rows(length, x.options());
      return {all.cosines.unsqueeze(1), all.sines.unsqueeze(1)};
    }
    const RotaryTable::Rows all = rotary->rows(piece->capacity, x.options());
    if (const auto first = common_first(*piece))
      return {all.cosines.narrow(0, *first, length).unsqueeze(1),
              all.sines.narrow(0, *first, length).unsqueeze(1)};
    std::vector<at::Tensor> cosines, sines;
    for (const std::int64_t first : piece->first) {
      cosines.push_back(all.cosines.narrow(0, first, length));
      sines.push_back(all.sines.narrow(0, first, length));
    }
    return {at::stack(cosines).unsqueeze(2), at::stack(sines).unsqueeze(2)};
  }
};

/// [n, l, heads, d] <-> [n, heads, l, d]
at::Tensor swapped(const at::Tensor& x) { return x.transpose(1, 2); }

at::Tensor normed(const at::Tensor& x, const at::Tensor& inverse, const at::Tensor& weight) {
  return scaled_rows(x, inverse, weight, /*offset=*/0.0).to(x.scalar_type());  // autocast keeps weights wide
}

/// Queries, keys and values as the products take them: normed where the layer does, and rotated.
struct Placed {
  Heads heads;
  at::Tensor inverse_queries, inverse_keys;  ///< with norms: 1 / root mean squares
};

/// In new memory, or where nobody else reads an input in its own.
Placed placed(const GroupedAttention& layer, TensorSpan inputs, TensorSpan weights, const Piece* piece) {
  const GroupedSettings& settings = layer.settings;
  // Before there are views of them.
  const bool own_queries = settings.norms || may_overwrite(inputs[0]);
  const bool own_keys = settings.norms || settings.packing == HeadPacking::latent ||
                        (inputs.size() == 1 ? own_queries : may_overwrite(inputs[1]));
  Placed made{heads_of(settings, inputs), {}, {}};
  auto& [queries, keys, values, sinks] = made.heads;
  if (settings.sinks) sinks = weights.back();
  if (settings.norms) {
    made.inverse_queries = inverse_root_mean_square(queries, settings.eps);
    made.inverse_keys = inverse_root_mean_square(keys, settings.eps);
    queries = normed(queries, made.inverse_queries, weights[0]);
    keys = normed(keys, made.inverse_keys, weights[1]);
  }
  if (!layer.rotates()) return made;
  const RotaryTable::Rows rows = layer.rows(queries, piece);
  if (at::GradMode::is_enabled()) {
    queries = turned(layer.rotary->settings(), queries, rows);
    keys = turned(layer.rotary->settings(), keys, rows);
    return made;
  }
  if (!own_queries) queries = queries.clone(at::MemoryFormat::Contiguous);
  if (!own_keys) keys = keys.clone(at::MemoryFormat::Contiguous);
  turn(layer.rotary->settings(), queries, rows, Turn::forth);
  turn(layer.rotary->settings(), keys, rows, Turn::forth);
  return made;
}

/// Undefined where the kernel's own causal order does.
at::Tensor mask_of(const GroupedSettings& settings, const at::Tensor& queries) {
  const std::int64_t length = queries.size(1);
  if (!is_windowed(settings, length)) return {};
  return sight_mask(settings, length, queries.options().requires_grad(false));
}

/// With zeros behind narrower values: the kernels take heads of one width.
at::Tensor widened(const at::Tensor& x, std::int64_t width) {
  return x.size(3) < width ? at::constant_pad_nd(x, {0, width - x.size(3)}) : x;
}

Attending attending_of(const GroupedSettings& settings, const Heads& heads) {
  const at::Tensor mask = mask_of(settings, heads.queries);
  return {swapped(heads.queries),
          swapped(heads.keys),
          swapped(widened(heads.values, heads.queries.size(3))),
          settings.causal && !mask.defined(),
          settings.factor(heads.queries.size(3)),
          mask};
}

/// Of whole sequences.
bool can_fuse(const GroupedSettings& settings, const Heads& heads) {
  return !settings.needs_scores() && can_fuse(attending_of(settings, heads));
}

/// The sums of the l results, [n, heads, l]: some kernels pad them.
at::Tensor of_results(const at::Tensor& log_sum_exp, const at::Tensor& mixed) {
  return log_sum_exp.narrow(2, 0, mixed.size(2));
}

/// What the kernels that hold no scores make, with the sinks in its sums.
Fused attend_fused(const GroupedSettings& settings, const Heads& heads) {
  Fused fused = attend_fused(attending_of(settings, heads));
  if (!heads.sinks.defined()) return fused;
  const at::Tensor without = of_results(fused.log_sum_exp, fused.mixed);
  fused.log_sum_exp = at::logaddexp(fused.log_sum_exp, heads.sinks.to(without.scalar_type()).unsqueeze(1));
  const at::Tensor share = without.sub(of_results(fused.log_sum_exp, fused.mixed)).exp_();
  fused.mixed.mul_(share.unsqueeze(3));
  return fused;
}

/// The gradient of the sinks from those of the results, which are [n, heads, l, d].
at::Tensor sinks_gradient(const at::Tensor& sinks, const Fused& fused, const at::Tensor& gradient) {
  const at::Tensor sums = of_results(fused.log_sum_exp, fused.mixed);
  const at::Tensor shares = sinks.to(sums.scalar_type()).unsqueeze(1).sub(sums).exp_();
  const at::Tensor along = gradient.mul(fused.mixed).sum(3, false, sums.scalar_type());
  return shares.mul_(along).sum(at::IntArrayRef{0, 2}).neg_().to(sinks.scalar_type());
}

at::Tensor attend_whole(const GroupedSettings& settings, const Heads& heads, LayerContext& context) {
  const bool with_scores = settings.needs_scores() || heads.sinks.defined();
  const bool may_fuse = !at::GradMode::is_enabled() || (heads.queries.is_cpu() && !with_scores);
  if (may_fuse && can_fuse(settings, heads))
    return attend_fused(settings, heads).mixed.narrow(3, 0, heads.values.size(3));
  const at::Tensor q = swapped(heads.queries), k = swapped(heads.keys), v = swapped(heads.values);
  if (with_scores) {
    const at::Tensor mask =
        settings.causal ? sight_mask(settings, q.size(2), q.options().requires_grad(false)) : at::Tensor();
    return attend_with_scores(settings, {q, k, v, heads.sinks}, mask, context);
  }
  const at::Tensor mask = mask_of(settings, heads.queries);
  return at::scaled_dot_product_attention(q, k, v, optional_mask(mask), 0.0, settings.causal && !mask.defined(),
                                          settings.factor(q.size(3)), /*enable_gqa=*/true);
}

/// A piece: its keys and values join those of the pieces before, which all are attended to.
at::Tensor attend_piece(const GroupedSettings& settings, const Heads& heads, LayerContext& context) {
  const Piece& piece = *context.piece;
  LayerCache& cache = *context.cache;
  const std::int64_t n = heads.queries.size(0), l = heads.queries.size(1);
  const auto append = [&](at::Tensor& kept, const at::Tensor& more) {
    // Zeros: what a mask hides is multiplied by a share of 0, and must be a number.
    if (!kept.defined()) kept = at::zeros({n, more.size(2), piece.capacity, more.size(3)}, more.options());
    const at::Tensor by_group = swapped(more);  // [n, groups, l, width]
    if (const auto first = common_first(piece)) {
      kept.narrow(2, *first, l).copy_(by_group);
      return;
    }
    for (std::int64_t i = 0; i < n; ++i)
      kept[i].narrow(1, piece.first[static_cast<std::size_t>(i)], l).copy_(by_group[i]);
  };
  append(cache.keys, heads.keys);
  append(cache.values, heads.values);
  const std::int64_t most = std::ranges::max(piece.first);
  if (most == 0) return attend_whole(settings, heads, context);
  const std::int64_t seen = most + l;
  const at::Tensor keys = cache.keys.narrow(2, 0, seen), values = cache.values.narrow(2, 0, seen);
  // One more position of samples of one length sees all of them.
  const bool sees_all = l == 1 && common_first(piece) && (settings.window == 0 || settings.window >= seen);
  const at::Tensor mask =
      sees_all ? at::Tensor() : sight_mask(settings, piece, l, seen, heads.queries.options());
  if (settings.needs_scores() || heads.sinks.defined())
    return attend_with_scores(settings, {swapped(heads.queries), keys, values, heads.sinks}, mask, context);
  return at::scaled_dot_product_attention(swapped(heads.queries), keys, values, optional_mask(mask), 0.0,
                                          /*is_causal=*/false, settings.factor(heads.queries.size(3)),
                                          /*enable_gqa=*/true);
}

at::Tensor attend(const GroupedSettings& settings, const Heads& heads, LayerContext& context) {
  return context.piece != nullptr ? attend_piece(settings, heads, context)
                                  : attend_whole(settings, heads, context);
}

/// What the written backward needs: queries and keys as placed, or with norms as they came, with their inverse
/// root mean squares; values as they came, of a packed input by heads.
enum SavedGroups : std::size_t {
  kQueries,
  kKeys,
  kValues,
  kMixed,
  kLogSumExp,
  kSeed,
  kOffset,
  kInverseQueries,
  kInverseKeys
};

// Queries [n, l, heads d], keys [n, l, groups d], values [n, l, groups e] -> [n, l, heads e]; or one input of
// all three. With norms q_norm.weight and k_norm.weight [d], then with sinks these.
Forward forward_of(const GroupedAttention& layer) {
  return [layer](TensorSpan inputs, TensorSpan weights, LayerContext& context) -> Tensors {
    Tensors single;
    if (at::GradMode::is_enabled()) {
      for (const at::Tensor& input : inputs) single.push_back(once(input));
      inputs = single;
    }
    const Placed made = placed(layer, inputs, weights, context.piece);
    if (context.saved == nullptr) return {joined_heads(attend(layer.settings, made.heads, context))};
    const Fused fused = attend_fused(layer.settings, made.heads);
    const Heads came = heads_of(layer.settings, inputs);
    const bool apart = inputs.size() == 3 && layer.settings.packing != HeadPacking::latent;
    const at::Tensor values = apart ? inputs[2] : came.values;
    if (layer.settings.norms) {
      save(context, {came.queries, came.keys, values, fused.mixed, fused.log_sum_exp, fused.seed, fused.offset,
                     made.inverse_queries, made.inverse_keys});
    } else {
      save(context, {made.heads.queries, made.heads.keys, values, fused.mixed, fused.log_sum_exp, fused.seed,
                     fused.offset});
    }
    return {joined_heads(fused.mixed.narrow(3, 0, came.values.size(3)))};
  };
}

/// From the gradient of the result [n, l, heads e] to those of the heads before their rotation.
Heads back_through_products(const GroupedAttention& layer, const Heads& heads, TensorSpan saved,
                            const at::Tensor& gradient) {
  const Fused fused{saved[kMixed], saved[kLogSumExp], saved[kSeed], saved[kOffset]};
  const at::Tensor by_head = widened(gradient.unflatten(2, {layer.settings.heads, -1}), heads.queries.size(3));
  const auto [queries, keys, values] =
      fused_backward(attending_of(layer.settings, heads), fused, swapped(by_head));
  Heads gradients{swapped(queries), swapped(keys), swapped(values.narrow(3, 0, heads.values.size(3)))};
  if (heads.sinks.defined()) gradients.sinks = sinks_gradient(heads.sinks, fused, swapped(by_head));
  if (layer.rotates()) {
    const RotaryTable::Rows rows = layer.rows(heads.queries, nullptr);
    turn(layer.rotary->settings(), gradients.queries, rows, Turn::back);
    turn(layer.rotary->settings(), gradients.keys, rows, Turn::back);
  }
  return gradients;
}

Tensors backward_of_heads(const GroupedAttention& layer, TensorSpan saved, const at::Tensor& sinks,
                          const at::Tensor& gradient) {
  const bool packed = saved[kValues].dim() == 4;
  const at::Tensor values = packed ? saved[kValues] : saved[kValues].unflatten(2, {layer.settings.groups, -1});
  const Heads gradients =
      back_through_products(layer, {saved[kQueries], saved[kKeys], values, sinks}, saved, gradient);
  Tensors results = joined(layer.settings, gradients, packed);
  if (sinks.defined()) results.push_back(gradients.sinks);
  return results;
}

/// Norms and rotation again, from what came.
Tensors backward_with_norms(const GroupedAttention& layer, TensorSpan saved, TensorSpan weights,
                            const at::Tensor& gradient) {
  const bool packed = saved[kValues].dim() == 4;
  const RotarySettings& rotary = layer.rotary->settings();
  const Heads heads{normed(saved[kQueries], saved[kInverseQueries], weights[0]),
                    normed(saved[kKeys], saved[kInverseKeys], weights[1]),
                    packed ? saved[kValues] : saved[kValues].unflatten(2, {layer.settings.groups, -1}),
                    layer.settings.sinks ? weights.back() : at::Tensor()};
  if (layer.rotates()) {
    const RotaryTable::Rows rows = layer.rows(heads.queries, nullptr);
    turn(rotary, heads.queries, rows, Turn::forth);
    turn(rotary, heads.keys, rows, Turn::forth);
  }
  Heads gradients = back_through_products(layer, heads, saved, gradient);
  const auto [queries, of_q_norm] =
      scaled_rows_backward(gradients.queries, saved[kQueries], saved[kInverseQueries], weights[0], 0.0);
  const auto [keys, of_k_norm] =
      scaled_rows_backward(gradients.keys, saved[kKeys], saved[kInverseKeys], weights[1], 0.0);
  Tensors results = joined(layer.settings, {queries, keys, gradients.values}, packed);
  results.append({of_q_norm, of_k_norm});
  if (layer.settings.sinks) results.push_back(gradients.sinks);
  return results;
}

std::optional<WrittenBackward> backward_of(const GroupedAttention& layer) {
  if (layer.settings.needs_scores()) return std::nullopt;
  WrittenBackward backward{.applies = [layer](TensorSpan inputs) {
    return can_fuse(layer.settings, heads_of(layer.settings, inputs));
  }};
  if (layer.settings.norms) {
    backward.both = [layer](TensorSpan saved, TensorSpan weights, const at::Tensor& gradient) -> Tensors {
      return backward_with_norms(layer, saved, weights, gradient);
    };
  } else if (layer.settings.sinks) {
    backward.both = [layer](TensorSpan saved, TensorSpan weights, const at::Tensor& gradient) -> Tensors {
      return backward_of_heads(layer, saved, weights.back(), gradient);
    };
  } else {
    backward.inputs = [layer](Tensors& saved, TensorSpan /*weights*/, const at::Tensor& gradient) -> Tensors {
      return backward_of_heads(layer, saved, {}, gradient);
    };
  }
  return backward;
}

BoundLayer grouped_query_attention(const Attributes& attributes) {
  const GroupedAttention layer(attributes);
  return {.forward = forward_of(layer),
          .backward = backward_of(layer),
          .held = [table = layer.rotary](std::vector<at::Tensor>& tensors) { table->collect(tensors); }};
}

constexpr std::array kGroupedQueryAttentionRows{Row{.name = "grouped_query_attention",
                                                    .bind = nullptr,
                                                    .initialise = initialise_norm_weights,
                                                    .bind_whole = grouped_query_attention}};

}  // namespace

std::span<const Row> grouped_query_attention_rows() { return kGroupedQueryAttentionRows; }

}  // namespace pp::model::ops
