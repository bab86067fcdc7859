#include "libprofile/model/aten/constants.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "libprofile/model/ops.h"

namespace pp::model::aten {
namespace {

template <class T>
at::Tensor filled(const AtenConstant& constant, at::ScalarType type) {
  at::Tensor tensor = at::empty(constant.type.shape, at::TensorOptions(type));
  T* place = tensor.mutable_data_ptr<T>();
  const auto take = [&](const auto& value) { *place++ = static_cast<T>(value); };
  if (const auto* formula = std::get_if<ConstantFormula>(&constant.values)) {
    for_each_value(*formula, constant.type.shape, take);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&constant.values)) {
    std::ranges::for_each(*numbers, take);
  } else {
    std::ranges::for_each(std::get<std::vector<std::int64_t>>(constant.values), take);
  }
  return tensor;
}

/// Floating ones as float64.
at::Tensor on_host(const AtenConstant& constant) {
  const at::InferenceMode no_inference(false);
  switch (constant.type.dtype) {
    case DType::boolean: return filled<bool>(constant, at::kBool);
    case DType::uint8: return filled<std::uint8_t>(constant, at::kByte);
    case DType::int64: return filled<std::int64_t>(constant, at::kLong);
    default: return filled<double>(constant, at::kDouble);
  }
}

}  // namespace

const std::vector<at::Tensor>& Constants::on(const at::Device& device, at::ScalarType dtype) {
  const std::lock_guard held(mutex_);
  const auto found = std::ranges::find_if(
      made_, [&](const Made& made) { return made.device == device && made.dtype == dtype; });
  if (found != made_.end()) return found->tensors;
  const at::InferenceMode no_inference(false);
  const at::AutoGradMode no_grad(false);
  Made made{device, dtype, {}};
  for (const AtenConstant& constant : constants_) {
    const at::Tensor tensor = on_host(constant);
    made.tensors.push_back(tensor.to(device, tensor.is_floating_point() ? dtype : tensor.scalar_type()));
  }
  return made_.emplace_back(std::move(made)).tensors;
}

void Constants::collect(std::vector<at::Tensor>& tensors) {
  const std::lock_guard held(mutex_);
  for (const Made& made : made_) tensors.insert(tensors.end(), made.tensors.begin(), made.tensors.end());
}

}  // namespace pp::model::aten
