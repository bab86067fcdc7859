#include "libprofile/model/ops/root_mean_square.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>

namespace pp::model::ops {
namespace {

/// The type that sums are made in.
at::ScalarType wide(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf ? at::kFloat : x.scalar_type();
}

}  // namespace

at::Tensor inverse_root_mean_square(const at::Tensor& x, double eps) {
  const at::Tensor length = at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, /*keepdim=*/true, wide(x));
  return length.square().div(static_cast<double>(x.size(-1))).add(eps).rsqrt();
}

// With `inverse` wide, x * inverse is.
at::Tensor scaled_rows(const at::Tensor& x, const at::Tensor& inverse, const at::Tensor& weight,
                       double offset) {
  const at::Tensor unit = x.to(wide(x)).mul(inverse);
  if (offset == 0.0) return unit.to(x.scalar_type()).mul(weight);
  return unit.mul(weight.to(wide(x)).add(offset)).to(x.scalar_type());
}

// y = u w with u = x r and r = (x.x / d + eps)^(-1/2): the gradient of x is r (g w - u (g w . u) / d).
std::pair<at::Tensor, at::Tensor> scaled_rows_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                       const at::Tensor& inverse, const at::Tensor& weight,
                                                       double offset) {
  const at::Tensor factor = offset == 0.0 ? weight.to(wide(x)) : weight.to(wide(x)).add(offset);
  const at::Tensor unit = x.to(wide(x)).mul(inverse), g = gradient.to(wide(x));
  const at::Tensor by_unit = g.mul(unit);  // [..., d]
  const at::Tensor along = at::matmul(by_unit, factor).div_(static_cast<double>(x.size(-1))).unsqueeze(-1);
  at::Tensor of_x = g.mul(factor).sub_(unit.mul_(along)).mul_(inverse);
  return {of_x.to(x.scalar_type()), by_unit.flatten(0, -2).sum(0).to(weight.scalar_type())};
}

}  // namespace pp::model::ops
