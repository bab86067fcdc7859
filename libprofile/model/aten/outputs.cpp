#include "libprofile/model/aten/outputs.h"

#include <ATen/core/List.h>

#include <string>

#include "libprofile/core/error.h"

namespace pp::model::aten {
namespace {

bool has_type(const at::Tensor& tensor, DType dtype) {
  return is_floating(dtype) ? tensor.is_floating_point() : tensor.scalar_type() == scalar_type(dtype);
}

std::string found_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  if (tensor.layout() != at::kStrided) return "a sparse tensor";
  return std::string(c10::toString(tensor.scalar_type())) + " " + pp::to_text(tensor.sizes().vec());
}

}  // namespace

Tensors tensors_of(torch::jit::Stack& stack) {
  Tensors tensors;
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
    } else {
      throw Error(ErrorKind::run, "returned what is no tensor");
    }
  }
  stack.clear();
  return tensors;
}

std::string to_text(const RowTensor& record) {
  std::string text = std::string(name_of(record.type.dtype)) + " [";
  const auto add = [&](const std::string& size) { text.append(text.back() == '[' ? "" : ", ").append(size); };
  const Shape& shape = record.type.shape;
  for (std::size_t d = 0; d <= shape.size(); ++d) {
    if (record.rows > 0 && d == static_cast<std::size_t>(record.batch_dim))
      add(record.rows == 1 ? "b" : std::to_string(record.rows) + " b");
    if (d < shape.size()) add(std::to_string(shape[d]));
  }
  return text + "]";
}

void check_outputs(std::span<const RowTensor> recorded, std::int64_t samples, TensorSpan found) {
  if (found.size() != recorded.size()) {
    throw Error(ErrorKind::run, "returned " + std::to_string(found.size()) +
                                    " tensors, the model has recorded " + std::to_string(recorded.size()));
  }
  for (std::size_t k = 0; k < found.size(); ++k) {
    const at::Tensor& tensor = found[k];
    const bool same = tensor.defined() && tensor.layout() == at::kStrided &&
                      tensor.sizes() == full_shape(recorded[k], samples) &&
                      has_type(tensor, recorded[k].type.dtype);
    if (same) continue;
    throw Error(ErrorKind::run, "output " + std::to_string(k) + " is " + found_text(tensor) + " for " +
                                    std::to_string(samples) + " samples, the model has recorded " +
                                    to_text(recorded[k]) + "; export the model again");
  }
}

}  // namespace pp::model::aten
