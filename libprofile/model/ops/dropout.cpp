#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <array>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

/// In evaluation the input itself. `mask`: input -> sizes of the mask.
template <class Mask>
Forward dropping(const Attributes& attributes, Mask mask) {
  return [probability = number(attributes, "p"), mask](TensorSpan inputs, TensorSpan /*weights*/,
                                                       LayerContext& context) -> Tensors {
    const at::Tensor& x = inputs[0];
    if (context.mode == Mode::evaluation || probability == 0.0) return {x.view_as(x)};
    return {drop(x, probability, context, mask(x))};
  };
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

constexpr std::array kRows{
    Row{"dropout", dropout},
    Row{"dropout2d", dropout2d},
    Row{"locked_dropout", locked_dropout},
    Row{"stochastic_depth", stochastic_depth},
};

}  // namespace

at::Tensor drop(const at::Tensor& x, double probability, LayerContext& context, at::IntArrayRef mask) {
  if (context.generator == nullptr) {
    throw Error(ErrorKind::internal, "dropout: no generator; give the pass context one");
  }
  if (!context.seeded) context.generator->set_current_seed(mix(context.key, context.layer));
  context.seeded = true;
  const at::Tensor keep = at::empty(mask, x.options().dtype(at::kBool).requires_grad(false));
  keep.bernoulli_(1.0 - probability, *context.generator);
  return at::where(keep, x.mul(1.0 / (1.0 - probability)), 0);
}

at::Tensor drop(const at::Tensor& x, double probability, LayerContext& context) {
  return drop(x, probability, context, x.sizes());
}

std::span<const Row> dropout_rows() { return kRows; }

}  // namespace pp::model::ops
