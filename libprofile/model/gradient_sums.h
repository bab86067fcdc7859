// Sums of gradients, in place only where the buffer is ours: of weights over the micro-batches, and of a
// tensor over those who read it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "libprofile/model/ops.h"

namespace pp::model {

/// Per parameter a sum, undefined until the first addition. It becomes its place or, without places, a dense
/// tensor with the layout of the weight. References live as long as the sums.
class WeightSums {
 public:
  /// `places`: one per parameter, or none.
  WeightSums(TensorSpan weights, std::span<at::Tensor> sums, TensorSpan places)
      : weights_(weights), sums_(sums), places_(places) {}

  std::size_t size() const { return sums_.size(); }
  /// Whether the parameter is trained. Of others nothing is added.
  bool wants(std::size_t parameter) const { return weights_[parameter].requires_grad(); }
  bool wants_any() const;
  /// An undefined gradient adds nothing.
  void add(std::size_t parameter, at::Tensor gradient);
  /// The product of left [rows, k] and right [k, columns], in the shape of the parameter, whose first dimension
  /// is `rows`. It is added within the product (beta of 1), or put where the sum is to be: no tensor in
  /// between.
  void add_product(std::size_t parameter, const at::Tensor& left, const at::Tensor& right);
  /// The same to the matrix `part` of a parameter [parts, rows, columns].
  void add_product(std::size_t parameter, std::int64_t part, const at::Tensor& left, const at::Tensor& right);

 private:
  /// Where the first addition puts the sum, with any contents.
  at::Tensor place(std::size_t parameter) const;

  TensorSpan weights_;
  std::span<at::Tensor> sums_;
  TensorSpan places_;
};

}  // namespace pp::model

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

namespace pp::model {

/// There is no other reference to the tensor or to its memory. Storages that cannot be resized are taken to
/// borrow theirs: tensors received by reference (device/hand_over.h), data of others.
inline bool is_sole_owner(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.storage().resizable();
}

}  // namespace pp::model
