// Products of matrices on a CPU: LibTorch's kernels of mm, addmm and bmm, or oneDNN's by the operation that
// torch.compile uses for linear layers. Registered in place of LibTorch's own, which they call. Of float32: for
// bfloat16 LibTorch takes oneDNN by itself where the processor has the instructions.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <optional>
#include <utility>

#include "libprofile/model/kernels/kernels.h"

namespace pp::model {
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

}  // namespace

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

}  // namespace pp::model
