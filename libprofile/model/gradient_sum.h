// Sums of gradients, in place only where the buffer is ours: what autograd returns may alias other tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace pp::model::detail {

/// The gradient of one tensor while its consumers' gradients come in, added in the order of the calls.
class GradientSum {
 public:
  /// The first gradient is only referred to; the second addition makes a buffer, the others go into it.
  void add(const at::Tensor& gradient);
  /// Undefined when nothing was added. Leaves the sum empty.
  at::Tensor take();

 private:
  at::Tensor sum_;
  bool owned_ = false;
};

}  // namespace pp::model::detail
