// Sums of gradients, in place only where nobody else sees the memory: gradients may alias each other.
#pragma once

#include <ATen/core/Tensor.h>

namespace pp::model::detail {

/// The gradient of one tensor while its consumers' gradients come in, added in the order of the calls.
class GradientSum {
 public:
  /// The first gradient is only referred to. The second one goes into it where it is ours alone, else into a
  /// buffer.
  void add(const at::Tensor& gradient);
  /// Undefined when nothing was added. Leaves the sum empty.
  at::Tensor take();

 private:
  at::Tensor sum_;
};

}  // namespace pp::model::detail
