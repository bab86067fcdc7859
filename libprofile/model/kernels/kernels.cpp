// Choices of kernels, and what obeys them.
#include "libprofile/model/kernels/kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <optional>
#include <utility>

#include "libprofile/model/gradient_sums.h"
#include "libprofile/model/ops.h"

namespace pp::model {

namespace {

thread_local const Kernels* used = nullptr;
thread_local KernelKeys* recorded = nullptr;

}  // namespace

std::size_t KernelKeyHash::operator()(const KernelKey& key) const {
  const auto mix = [](std::size_t hash, std::size_t value) {
    return (hash ^ value) * std::size_t{0x9E3779B97F4A7C15U} + (hash >> 29U);
  };
  std::size_t hash = mix(static_cast<std::size_t>(key.task), static_cast<std::size_t>(key.dtype));
  hash = mix(hash, static_cast<std::size_t>(key.layout));
  for (std::size_t i = 0; i < size_count(key.task); ++i)
    hash = mix(hash, static_cast<std::size_t>(key.sizes[i]));
  return hash;
}

Kernels::Kernels(std::span<const KernelChoice> choices) {
  for (const KernelChoice& choice : choices) kernels_.emplace(choice.key, choice.kernel);
}

std::optional<Kernel> Kernels::find(const KernelKey& key) const {
  const auto found = kernels_.find(key);
  return found == kernels_.end() ? std::nullopt : std::optional(found->second);
}

UseKernels::UseKernels(const Kernels* kernels) : before_(std::exchange(used, kernels)) {}
UseKernels::~UseKernels() { used = before_; }

RecordKernels::RecordKernels(KernelKeys& keys) { recorded = &keys; }
RecordKernels::~RecordKernels() { recorded = nullptr; }

UsualKernels::UsualKernels()
    : used_(std::exchange(used, nullptr)), recorded_(std::exchange(recorded, nullptr)) {}
UsualKernels::~UsualKernels() {
  used = used_;
  recorded = recorded_;
}

Kernel chosen_kernel(const KernelKey& key) {
  if (recorded != nullptr) recorded->insert(key);
  const std::optional<Kernel> chosen = used == nullptr ? std::nullopt : used->find(key);
  return chosen ? *chosen : usual_kernel(key);
}

Kernel usual_kernel(const KernelKey& key) {
  if (is_product(key.task)) return Kernel::mkl;
  const std::int64_t factor = key.task == KernelTask::convolution_weight_gradient ? 1 : 16;
  return output_positions(key) * factor <= key.sizes[4] ? Kernel::product : Kernel::convolution;
}

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

// Products of matrices on a CPU: LibTorch's kernels of mm, addmm and bmm, or oneDNN's by the operation that
// torch.compile uses for linear layers. Registered in place of LibTorch's own, which they call. Of float32: for
// bfloat16 LibTorch takes oneDNN by itself where the processor has the instructions.

namespace {

/// Whether the matrix lies by columns; none where it is not dense.
std::optional<bool> is_transposed(const at::Tensor& matrix) {
  const std::int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  const auto lies = [&](int inner, std::int64_t length, int outer, std::int64_t others) {
    return (matrix.stride(inner) == 1 || length == 1) && (matrix.stride(outer) == length || others == 1);
  };
  if (lies(-1, columns, -2, rows)) return false;
  if (lies(-2, rows, -1, columns)) return true;
  return std::nullopt;
}

ProductLayout layout_of(bool left, bool right) {
  if (left) return right ? ProductLayout::tt : ProductLayout::tn;
  return right ? ProductLayout::nt : ProductLayout::nn;
}

/// Whether oneDNN is to multiply them, which are of `dims` dimensions.
bool takes_onednn(KernelTask task, const at::Tensor& left, const at::Tensor& right, std::int64_t dims) {
  if (left.dim() != dims || right.dim() != dims) return false;
  if (left.scalar_type() != at::kFloat || right.scalar_type() != at::kFloat) return false;
  if (left.numel() == 0 || right.numel() == 0 || left.size(-1) != right.size(-2)) return false;
  const std::optional<bool> left_transposed = is_transposed(left), right_transposed = is_transposed(right);
  if (!left_transposed || !right_transposed) return false;
  KernelKey key{task,
                DType::float32,
                layout_of(*left_transposed, *right_transposed),
                {left.size(-2), left.size(-1), right.size(-1)}};
  if (dims == 3) key.sizes[3] = left.size(0);
  return chosen_kernel(key) == Kernel::onednn;
}

/// left [rows, inner], right [inner, columns], bias [columns] or undefined -> [rows, columns]
at::Tensor by_onednn(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias = {}) {
  using Linear =
      at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, c10::string_view,
                 c10::List<std::optional<at::Scalar>>, std::optional<c10::string_view>);
  static const auto linear =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Linear>();
  static const c10::List<std::optional<at::Scalar>> no_scalars;
  return linear.call(left, right.t(), bias.defined() ? std::optional(bias) : std::nullopt, "none", no_scalars,
                     std::nullopt);
}

bool has_shape_of_product(const at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  return sum.dim() == 2 && left.dim() == 2 && right.dim() == 2 && sum.size(0) == left.size(0) &&
         sum.size(1) == right.size(1) && sum.scalar_type() == left.scalar_type();
}

bool is_one(const at::Scalar& factor) { return factor.equal(1); }

at::Tensor mm(const at::Tensor& left, const at::Tensor& right) {
  if (takes_onednn(KernelTask::product, left, right, 2)) return by_onednn(left, right);
  return at::cpu::mm(left, right);
}

at::Tensor& mm_out(const at::Tensor& left, const at::Tensor& right, at::Tensor& out) {
  if (has_shape_of_product(out, left, right) && takes_onednn(KernelTask::product_into, left, right, 2))
    return out.copy_(by_onednn(left, right));
  return at::cpu::mm_out(out, left, right);
}

at::Tensor addmm(const at::Tensor& bias, const at::Tensor& left, const at::Tensor& right,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  const bool plain = bias.dim() == 1 && is_one(beta) && is_one(alpha) && right.dim() == 2 &&
                     bias.size(0) == right.size(1) && bias.scalar_type() == left.scalar_type();
  if (plain && takes_onednn(KernelTask::product_with_bias, left, right, 2)) return by_onednn(left, right, bias);
  return at::cpu::addmm(bias, left, right, beta, alpha);
}

at::Tensor& addmm_(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  const bool plain = is_one(beta) && is_one(alpha) && has_shape_of_product(sum, left, right);
  if (plain && takes_onednn(KernelTask::product_added, left, right, 2)) return sum.add_(by_onednn(left, right));
  return at::cpu::addmm_(sum, left, right, beta, alpha);
}

at::Tensor bmm(const at::Tensor& left, const at::Tensor& right) {
  if (!takes_onednn(KernelTask::batched_product, left, right, 3)) return at::cpu::bmm(left, right);
  at::Tensor product = at::empty({left.size(0), left.size(1), right.size(2)}, left.options());
  for (std::int64_t b = 0; b < left.size(0); ++b) product[b].copy_(by_onednn(left[b], right[b]));
  return product;
}

/// LibTorch warns of every registration in the place of its own.
class Silent : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

/// Puts our products in the place of LibTorch's, once.
bool register_products() {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("mm", TORCH_FN(mm));
  library.impl("mm.out", TORCH_FN(mm_out));
  library.impl("addmm", TORCH_FN(addmm));
  library.impl("addmm_", TORCH_FN(addmm_));
  library.impl("bmm", TORCH_FN(bmm));
  return true;
}

[[maybe_unused]] const bool kProductsRegistered = register_products();  // before main()

}  // namespace

}  // namespace pp::model
