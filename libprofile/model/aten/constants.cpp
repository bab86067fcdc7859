#include "libprofile/model/aten/constants.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "libprofile/model/ops.h"

namespace pp::model::aten {
namespace {

at::Tensor on_host(const AtenConstant& constant) {
  const at::InferenceMode no_inference(false);
  const auto filled = [&](const auto& values, at::ScalarType type) {
    at::Tensor tensor = at::empty(constant.type.shape, at::TensorOptions(type));
    using T = typename std::decay_t<decltype(values)>::value_type;
    std::ranges::copy(values, tensor.mutable_data_ptr<T>());
    return tensor;
  };
  if (const auto* numbers = std::get_if<std::vector<double>>(&constant.values))
    return filled(*numbers, at::kDouble);
  return filled(std::get<std::vector<std::int64_t>>(constant.values), at::kLong)
      .to(scalar_type(constant.type.dtype));
}

}  // namespace

Constants::Constants(std::vector<AtenConstant> constants) {
  const at::AutoGradMode no_grad(false);
  for (const AtenConstant& constant : constants) host_.push_back(on_host(constant));
}

const std::vector<at::Tensor>& Constants::on(const at::Device& device, at::ScalarType dtype) {
  const std::lock_guard held(mutex_);
  const auto found = std::ranges::find_if(
      made_, [&](const Made& made) { return made.device == device && made.dtype == dtype; });
  if (found != made_.end()) return found->tensors;
  const at::InferenceMode no_inference(false);
  const at::AutoGradMode no_grad(false);
  Made made{device, dtype, {}};
  for (const at::Tensor& tensor : host_)
    made.tensors.push_back(tensor.to(device, tensor.is_floating_point() ? dtype : tensor.scalar_type()));
  return made_.emplace_back(std::move(made)).tensors;
}

void Constants::collect(std::vector<at::Tensor>& tensors) {
  const std::lock_guard held(mutex_);
  for (const Made& made : made_) tensors.insert(tensors.end(), made.tensors.begin(), made.tensors.end());
}

}  // namespace pp::model::aten
