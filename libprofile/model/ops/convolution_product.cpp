#include "libprofile/model/ops/convolution_product.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "libprofile/model/kernels/kernels.h"
#include "libprofile/model/ops/strided_convolution.h"

namespace pp::model::ops {
namespace {

/// [out, in, height, width] -> [out, in height width]
at::Tensor rows(const at::Tensor& weight) { return weight.view({weight.size(0), -1}); }

/// [n, c, positions...] -> [c, n positions]
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

/// What one output reads is one position of the input.
bool is_pointwise(const Convolution& convolution, const at::Tensor& weight) {
  return weight.size(2) == 1 && weight.size(3) == 1 && convolution.padding[0] == 0 &&
         convolution.padding[1] == 0;
}

/// What each output reads. [in height width, n h' w']
at::Tensor columns(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight) {
  if (is_pointwise(convolution, weight)) return by_channel(positions_read(x, weight, convolution.stride));
  return by_channel(at::im2col(x, weight.sizes().slice(2), {convolution.dilation, convolution.dilation},
                               convolution.padding, {convolution.stride, convolution.stride}));
}

/// Whether it runs as a product. There is a choice where what each output reads, written out, is at most four
/// times the weights: a product of more takes too much memory.
bool is_product(KernelTask task, const Convolution& convolution, const at::Tensor& x,
                const at::Tensor& weight) {
  constexpr std::int64_t kMost = 4;
  const bool known = x.is_cpu() && x.scalar_type() == at::kFloat && weight.is_contiguous() &&
                     convolution.groups == 1 && x.numel() > 0 && !at::autocast::is_autocast_enabled(at::kCPU);
  if (!known) return false;
  const KernelKey key{
      task,
      DType::float32,
      {},
      {x.size(0), x.size(1), x.size(2), x.size(3), weight.size(0), weight.size(2), weight.size(3),
       convolution.padding[0], convolution.padding[1], convolution.stride, convolution.dilation}};
  return output_positions(key) <= kMost * weight.size(0) && chosen_kernel(key) == Kernel::product;
}

/// [n, out, h', w']
at::Tensor product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor y = rows(weight).mm(columns(convolution, x, weight));
  return by_sample(y, x.size(0))
      .view({x.size(0), weight.size(0), output_side(convolution, x, weight, 0),
             output_side(convolution, x, weight, 1)});
}

/// In an autograd graph, which would keep the columns: this keeps the input, and writes them anew.
struct Recorded : torch::autograd::Function<Recorded> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const Convolution& c) {
    context->save_for_backward({x, weight});
    context->saved_data["sizes"] = std::vector<std::int64_t>{c.padding[0], c.padding[1], c.stride, c.dilation};
    return product(c, x, weight);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const Convolution c{{sizes[0], sizes[1]}, sizes[2], sizes[3], /*groups=*/1};
    const at::Tensor &x = saved[0], &weight = saved[1];
    torch::autograd::variable_list found(3);
    if (context->needs_input_grad(0)) found[0] = input_gradient_by_product(c, gradients[0], x, weight);
    if (context->needs_input_grad(1))
      found[1] = by_channel(gradients[0]).mm(columns(c, x, weight).t()).view(weight.sizes());
    return found;
  }
};

}  // namespace

at::Tensor convolve_by_product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias) {
  const bool recorded = at::GradMode::is_enabled();
  const at::Tensor y = recorded ? Recorded::apply(x, weight, convolution) : product(convolution, x, weight);
  if (!bias.defined()) return y;
  const at::Tensor by_channel = bias.view({-1, 1, 1});  // addmm's kernel would be one for a bias by columns
  return recorded ? y.add(by_channel) : y.add_(by_channel);
}

at::Tensor input_gradient_by_product(const Convolution& convolution, const at::Tensor& gradient,
                                     const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor product = rows(weight).t().mm(by_channel(gradient));
  if (is_pointwise(convolution, weight)) {
    const at::Tensor read =
        product.view({x.size(1), x.size(0), gradient.size(2), gradient.size(3)}).transpose(0, 1);
    if (convolution.stride == 1) return read.contiguous();
    const at::Tensor all = at::zeros(x.sizes(), x.options());
    positions_read(all, weight, convolution.stride).copy_(read);
    return all;
  }
  return at::col2im(by_sample(product, x.size(0)), x.sizes().slice(2), weight.sizes().slice(2),
                    {convolution.dilation, convolution.dilation}, convolution.padding,
                    {convolution.stride, convolution.stride});
}

void add_weight_gradient_by_product(const Convolution& convolution, const at::Tensor& gradient,
                                    const at::Tensor& x, const at::Tensor& weight, WeightSums& sums) {
  sums.add_product(0, by_channel(gradient), columns(convolution, x, weight).t());
}

bool forward_is_product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight) {
  return is_product(KernelTask::convolution, convolution, x, weight);
}

bool input_gradient_is_product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight) {
  if (x.is_cuda())
    return convolution.groups == 1 && is_pointwise(convolution, weight) && convolution.stride > 1;
  return is_product(KernelTask::convolution_input_gradient, convolution, x, weight);
}

bool weight_gradient_is_product(const Convolution& convolution, const at::Tensor& x, const at::Tensor& weight) {
  if (x.is_cuda()) return convolution.groups == 1 && is_pointwise(convolution, weight);
  return is_product(KernelTask::convolution_weight_gradient, convolution, x, weight);
}

}  // namespace pp::model::ops
