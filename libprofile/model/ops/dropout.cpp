#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include "libprofile/core/error.h"
#include "libprofile/core/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

at::Tensor drop(const at::Tensor& x, double probability, LayerContext& context) {
  if (context.generator == nullptr) {
    throw Error(ErrorKind::internal, "dropout: no generator; give the pass context one");
  }
  if (!context.seeded) context.generator->set_current_seed(mix(context.key, context.layer));
  context.seeded = true;
  const at::Tensor keep = at::empty(x.sizes(), x.options().dtype(at::kBool).requires_grad(false));
  keep.bernoulli_(1.0 - probability, *context.generator);
  return at::where(keep, x.mul(1.0 / (1.0 - probability)), 0);
}

Tensors dropout(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                LayerContext& context) {
  const double probability = number(attributes, "p");
  if (context.mode == Mode::evaluation || probability == 0.0) return {inputs[0].view_as(inputs[0])};
  return {drop(inputs[0], probability, context)};
}

}  // namespace pp::model::ops
