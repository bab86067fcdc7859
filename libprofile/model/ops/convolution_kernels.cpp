#include "libprofile/model/ops/convolution_kernels.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "libprofile/model/kernels/kernels.h"

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

namespace {

std::int64_t sides_of(const at::Tensor& weight) { return weight.dim() - 2; }

/// The number of side `i`.
std::int64_t of_side(at::IntArrayRef numbers, std::int64_t i) {
  return numbers.size() == 1 ? numbers[0] : numbers[static_cast<std::size_t>(i)];
}

bool strided_1x1(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride) {
  const at::IntArrayRef kernel = weight.sizes().slice(2);
  return x.is_cpu() && std::ranges::all_of(kernel, [](std::int64_t side) { return side == 1; }) &&
         std::ranges::any_of(stride, [](std::int64_t step) { return step > 1; });
}

}  // namespace

bool overruns(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding) {
  constexpr std::int64_t kVector = 16;
  return strided_1x1(x, weight, stride) && weight.size(1) < kVector &&
         std::ranges::all_of(padding, [](std::int64_t side) { return side == 0; });
}

at::Tensor positions_read(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride) {
  at::Tensor read = x;
  for (std::int64_t i = 0; i < sides_of(weight); ++i) {
    const std::int64_t side = x.dim() - sides_of(weight) + i;
    read = read.slice(side, 0, x.size(side), of_side(stride, i));
  }
  return read;
}

bool transposed_overruns(const TransposedConvolution& convolution, const at::Tensor& x,
                         const at::Tensor& weight) {
  return strided_1x1(x, weight, convolution.stride);
}

at::Tensor convolve_transposed(const TransposedConvolution& convolution, const at::Tensor& x,
                               const at::Tensor& weight, const at::Tensor& bias) {
  const std::int64_t sides = sides_of(weight), first = x.dim() - sides;
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(sides), 1), zeros(ones.size(), 0);
  const at::Tensor y = at::convolution(x, weight, {}, ones, zeros, ones, /*transposed=*/true,
                                       /*output_padding=*/zeros, convolution.groups);
  std::vector<std::int64_t> sizes = y.sizes().vec();
  const auto reach = [&](std::int64_t i) {
    return (y.size(first + i) - 1) * of_side(convolution.stride, i) + 1;
  };
  for (std::int64_t i = 0; i < sides; ++i)
    sizes[static_cast<std::size_t>(first + i)] = reach(i) + of_side(convolution.output_padding, i);
  at::Tensor apart = y.new_zeros(sizes);
  at::Tensor kept = apart;
  for (std::int64_t i = 0; i < sides; ++i)
    kept = kept.slice(first + i, 0, reach(i), of_side(convolution.stride, i));
  kept.copy_(y);
  for (std::int64_t i = 0; i < sides; ++i) {
    const std::int64_t padding = of_side(convolution.padding, i);
    apart = apart.narrow(first + i, padding, apart.size(first + i) - 2 * padding);
  }
  if (!bias.defined()) return apart;
  std::vector<std::int64_t> by_channel(ones);
  by_channel.insert(by_channel.begin(), -1);
  return apart.add(bias.view(by_channel));
}

}  // namespace pp::model::ops
