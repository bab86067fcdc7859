// Whether a tensor's memory may take something else.
#pragma once

#include <ATen/core/Tensor.h>

namespace pp::model {

/// There is no other reference to the tensor or to its memory. Storages that cannot be resized are taken to
/// borrow theirs: tensors received by reference (device/hand_over.h), data of others.
inline bool is_sole_owner(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.storage().resizable();
}

}  // namespace pp::model
