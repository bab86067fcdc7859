#include "libprofile/model/kernels/kernel_call.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "libprofile/model/ops.h"
#include "libprofile/model/weight_sums.h"

namespace pp::model {
namespace {

at::Tensor drawn(at::IntArrayRef sizes, DType type, const at::Generator& generator) {
  return at::normal(0.0, 1.0, sizes, generator, at::TensorOptions().dtype(at::kFloat)).to(scalar_type(type));
}

/// [batch,] rows, columns, as the transpose of a dense one where it is transposed.
at::Tensor matrix(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed, DType type,
                  const at::Generator& generator) {
  c10::SmallVector<std::int64_t, 3> sizes;
  if (batch > 0) sizes.push_back(batch);
  sizes.push_back(transposed ? columns : rows);
  sizes.push_back(transposed ? rows : columns);
  const at::Tensor dense = drawn(sizes, type, generator);
  return transposed ? dense.transpose(-1, -2) : dense;
}

KernelCall product_call(const KernelKey& key, const at::Generator& generator) {
  const auto [rows, inner, columns, batch] = std::array{key.sizes[0], key.sizes[1], key.sizes[2], key.sizes[3]};
  const bool left_transposed = key.layout == ProductLayout::tn || key.layout == ProductLayout::tt;
  const bool right_transposed = key.layout == ProductLayout::nt || key.layout == ProductLayout::tt;
  const at::Tensor left = matrix(batch, rows, inner, left_transposed, key.dtype, generator);
  const at::Tensor right = matrix(batch, inner, columns, right_transposed, key.dtype, generator);
  switch (key.task) {
    case KernelTask::product_with_bias: {
      const at::Tensor bias = drawn({columns}, key.dtype, generator);
      return {{left, right, bias}, [=] { return at::addmm(bias, left, right); }};
    }
    case KernelTask::product_into: {
      const at::Tensor place = drawn({rows, columns}, key.dtype, generator);
      return {{left, right, place}, [=, out = place]() mutable { return at::mm_out(out, left, right); }};
    }
    case KernelTask::product_added: {
      const at::Tensor sum = drawn({rows, columns}, key.dtype, generator);
      return {{left, right, sum}, [=] { return sum.addmm_(left, right); }};
    }
    case KernelTask::batched_product: return {{left, right}, [=] { return at::bmm(left, right); }};
    default: return {{left, right}, [=] { return at::mm(left, right); }};
  }
}

KernelCall convolution_call(const KernelKey& key, const at::Generator& generator) {
  const auto& sizes = key.sizes;
  const Attributes attributes{
      {"out_channels", sizes[4]}, {"kernel_size", sizes[5]},   {"kernel_width", sizes[6]},
      {"padding", sizes[7]},      {"padding_width", sizes[8]}, {"stride", sizes[9]},
      {"dilation", sizes[10]},    {"groups", std::int64_t{1}}, {"bias", false}};
  const BoundLayer layer = bind_layer("conv2d", attributes);
  const at::Tensor x = drawn({sizes[0], sizes[1], sizes[2], sizes[3]}, key.dtype, generator);
  const at::Tensor weight = drawn({sizes[4], sizes[1], sizes[5], sizes[6]}, key.dtype, generator);
  weight.requires_grad_(true);
  const auto forward = [=] {
    const c10::AutoGradMode no_grad(false);
    LayerContext context;
    return layer.forward(std::array{x}, std::array{weight}, context)[0];
  };
  if (key.task == KernelTask::convolution) return {{x, weight}, forward};
  const at::Tensor gradient = drawn(forward().sizes(), key.dtype, generator);
  if (key.task == KernelTask::convolution_input_gradient) {
    return {{x, weight, gradient}, [=] {
              const c10::AutoGradMode no_grad(false);
              Tensors saved{x};
              return layer.backward->inputs(saved, std::array{weight}, gradient)[0];
            }};
  }
  const at::Tensor place = at::zeros_like(weight.detach());
  return {{x, weight, gradient}, [=] {
            const c10::AutoGradMode no_grad(false);
            Tensors saved{x};
            std::array<at::Tensor, 1> sum, places{place};
            const std::array weights{weight};
            WeightSums sums(weights, sum, places);
            layer.backward->weights(saved, weights, gradient, sums);
            return sum[0];
          }};
}

}  // namespace

KernelCall make_call(const KernelKey& key, const at::Generator& generator) {
  return is_product(key.task) ? product_call(key, generator) : convolution_call(key, generator);
}

}  // namespace pp::model
