// Where the weight gradients of one layer are added up over the micro-batches.
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
  /// An undefined gradient adds nothing.
  void add(std::size_t parameter, at::Tensor gradient);

 private:
  TensorSpan weights_;
  std::span<at::Tensor> sums_;
  TensorSpan places_;
};

}  // namespace pp::model
