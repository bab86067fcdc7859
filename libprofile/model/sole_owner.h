// Whether a tensor's memory may take something else.
#pragma once

#include <ATen/core/Tensor.h>

namespace pp::model {

/// Nobody else refers to the tensor or to its storage.
inline bool is_sole_owner(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

}  // namespace pp::model
