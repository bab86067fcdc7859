#include "libprofile/model/ops/convolution_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/mm.h>

namespace pp::model::ops {
namespace {

/// [out, in, height, width] -> [out, in height width]
at::Tensor rows(const at::Tensor& weight) { return weight.view({weight.size(0), -1}); }

/// [n, c, positions] -> [c, n positions]
at::Tensor by_channel(const at::Tensor& x) { return x.transpose(0, 1).reshape({x.size(1), -1}); }

/// [c, n positions] -> [n, c, positions]
at::Tensor by_sample(const at::Tensor& x, std::int64_t n) {
  return x.view({x.size(0), n, -1}).transpose(0, 1).contiguous();
}

std::int64_t output_side(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight,
                         std::size_t side) {
  const auto dim = static_cast<std::int64_t>(side) + 2;
  const std::int64_t reach = convolution.dilation * (weight.size(dim) - 1) + 1;
  return (x.size(dim) + 2 * convolution.padding[side] - reach) / convolution.stride + 1;
}

/// What one output reads is the input itself.
bool is_pointwise(const Convolution& convolution, const at::Tensor& weight) {
  return weight.size(2) == 1 && weight.size(3) == 1 && convolution.stride == 1 && convolution.padding[0] == 0 &&
         convolution.padding[1] == 0;
}

/// What each output reads. [in height width, n h' w']
at::Tensor columns(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight) {
  if (is_pointwise(convolution, weight)) return by_channel(x.flatten(2));
  return by_channel(at::im2col(x, weight.sizes().slice(2), {convolution.dilation, convolution.dilation},
                               convolution.padding, {convolution.stride, convolution.stride}));
}

/// Output channels at least `factor` times the positions, of a kind that the products know.
bool few(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight, std::int64_t factor) {
  const std::int64_t positions =
      x.size(0) * output_side(convolution, x, weight, 0) * output_side(convolution, x, weight, 1);
  return x.is_cpu() && x.scalar_type() == at::kFloat && weight.is_contiguous() && convolution.groups == 1 &&
         positions * factor <= weight.size(0);
}

}  // namespace

at::Tensor convolve_by_product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias) {
  const at::Tensor right = columns(convolution, x, weight);
  const at::Tensor y =
      bias.defined() ? at::addmm(bias.unsqueeze(1), rows(weight), right) : rows(weight).mm(right);
  return by_sample(y, x.size(0))
      .view({x.size(0), weight.size(0), output_side(convolution, x, weight, 0),
             output_side(convolution, x, weight, 1)});
}

at::Tensor input_gradient_by_product(const Convolution& convolution, const at::Tensor& gradient,
                                     const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor read = by_sample(rows(weight).t().mm(by_channel(gradient.flatten(2))), x.size(0));
  if (is_pointwise(convolution, weight)) return read.view(x.sizes());
  return at::col2im(read, x.sizes().slice(2), weight.sizes().slice(2),
                    {convolution.dilation, convolution.dilation}, convolution.padding,
                    {convolution.stride, convolution.stride});
}

void add_weight_gradient_by_product(const Convolution& convolution, const at::Tensor& gradient,
                                    const at::Tensor& x, const at::Tensor& weight, WeightSums& sums) {
  sums.add_product(0, by_channel(gradient.flatten(2)), columns(convolution, x, weight).t());
}

bool few_positions(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight) {
  return few(convolution, x, weight, 16);
}

bool few_positions_for_weights(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight) {
  return few(convolution, x, weight, 1);
}

}  // namespace pp::model::ops
