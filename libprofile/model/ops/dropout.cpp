#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <array>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/comparison.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

/// A mask of these sizes, true for what stays. The layer's first draw reseeds the generator.
at::Tensor kept(at::IntArrayRef mask, const at::Tensor& x, double probability, LayerContext& context) {
  const at::Tensor keep = at::empty(mask, x.options().dtype(at::kBool).requires_grad(false));
  if (Comparison* const comparison = Comparison::here()) {
    comparison->drew(keep.numel());
    return keep.fill_(true);
  }
  if (context.generator == nullptr) {
    throw Error(ErrorKind::internal, "dropout: no generator; give the pass context one");
  }
  if (!context.seeded) context.generator->set_current_seed(mix(context.key, context.layer));
  context.seeded = true;
  keep.bernoulli_(1.0 - probability, *context.generator);
  return keep;
}

at::Tensor masked(const at::Tensor& x, const at::Tensor& keep, double probability) {
  return at::where(keep, x.mul(1.0 / (1.0 - probability)), 0);
}

/// In evaluation the input itself. `mask`: input -> sizes of the mask.
template <class Mask>
Forward dropping(const Attributes& attributes, Mask mask) {
  return [probability = number(attributes, "p"), mask](TensorSpan inputs, TensorSpan /*weights*/,
                                                       LayerContext& context) -> Tensors {
    const at::Tensor& x = inputs[0];
    if (context.mode == Mode::evaluation || probability == 0.0) return {x.view_as(x)};
    const at::Tensor keep = kept(mask(x), x, probability, context);
    save(context, {keep});
    return {masked(x, keep, probability)};
  };
}

std::optional<WrittenBackward> dropping_backward(const Attributes& attributes) {
  return WrittenBackward{
      .inputs = [probability = number(attributes, "p")](Tensors& saved, TensorSpan /*weights*/,
                                                        const at::Tensor& gradient) -> Tensors {
        return {saved.empty() ? gradient : masked(gradient, saved[0], probability)};
      }};
}

// [n, ...] -> the same
Forward dropout(const Attributes& attributes) {
  return dropping(attributes, [](const at::Tensor& x) { return x.sizes(); });
}

// [n, c, h, w] -> the same; the mask is [n, c, 1, 1]
Forward dropout2d(const Attributes& attributes) {
  return dropping(attributes, [](const at::Tensor& x) {
    return std::array<std::int64_t, 4>{x.size(0), x.size(1), 1, 1};
  });
}

// [n, positions, width] -> the same; the mask is [n, 1, width]
Forward locked_dropout(const Attributes& attributes) {
  return dropping(attributes, [](const at::Tensor& x) {
    return std::array<std::int64_t, 3>{x.size(0), 1, x.size(2)};
  });
}

// [n, ...] -> the same; the mask is [n, 1, ...]. Huang et al., Deep networks with stochastic depth, 2016.
Forward stochastic_depth(const Attributes& attributes) {
  return dropping(attributes, [](const at::Tensor& x) {
    c10::SmallVector<std::int64_t, 8> sizes(static_cast<std::size_t>(x.dim()), 1);
    sizes[0] = x.size(0);
    return sizes;
  });
}

constexpr std::array kDropoutRows{
    Row{.name = "dropout", .bind = dropout, .backward = dropping_backward},
    Row{.name = "dropout2d", .bind = dropout2d, .backward = dropping_backward},
    Row{.name = "locked_dropout", .bind = locked_dropout, .backward = dropping_backward},
    Row{.name = "stochastic_depth", .bind = stochastic_depth, .backward = dropping_backward},
};

}  // namespace

at::Tensor drop(const at::Tensor& x, double probability, LayerContext& context, at::IntArrayRef mask) {
  return masked(x, kept(mask, x, probability, context), probability);
}

at::Tensor drop(const at::Tensor& x, double probability, LayerContext& context) {
  return drop(x, probability, context, x.sizes());
}

std::span<const Row> dropout_rows() { return kDropoutRows; }

}  // namespace pp::model::ops
