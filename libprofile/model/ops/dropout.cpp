#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include "libprofile/core/error.h"
#include "libprofile/core/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

/// In evaluation the input itself.
Tensors dropped(const Attributes& attributes, const at::Tensor& x, at::IntArrayRef mask,
                LayerContext& context) {
  const double probability = number(attributes, "p");
  if (context.mode == Mode::evaluation || probability == 0.0) return {x.view_as(x)};
  return {drop(x, probability, context, mask)};
}

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

// [n, ...] -> the same
Tensors dropout(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                LayerContext& context) {
  return dropped(attributes, inputs[0], inputs[0].sizes(), context);
}

// [n, c, h, w] -> the same; the mask is [n, c, 1, 1]
Tensors dropout2d(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                  LayerContext& context) {
  return dropped(attributes, inputs[0], {inputs[0].size(0), inputs[0].size(1), 1, 1}, context);
}

// [n, positions, width] -> the same; the mask is [n, 1, width]
Tensors locked_dropout(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                       LayerContext& context) {
  return dropped(attributes, inputs[0], {inputs[0].size(0), 1, inputs[0].size(2)}, context);
}

}  // namespace pp::model::ops
