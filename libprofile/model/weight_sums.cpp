#include "libprofile/model/weight_sums.h"

#include <ATen/ops/empty_like.h>

#include <utility>

namespace pp::model {
namespace {

/// Nobody else sees the storage, and it looks like `weight`.
bool can_keep(const at::Tensor& gradient, const at::Tensor& weight) {
  return gradient.use_count() == 1 && gradient.storage().use_count() == 1 && !gradient.requires_grad() &&
         gradient.strides() == weight.strides() && gradient.storage().nbytes() == gradient.nbytes();
}

}  // namespace

void WeightSums::add(std::size_t parameter, at::Tensor gradient) {
  if (!gradient.defined()) return;
  at::Tensor& sum = sums_[parameter];
  if (sum.defined()) {
    sum.add_(gradient);
  } else if (!places_.empty()) {
    sum = places_[parameter];
    sum.copy_(gradient);
  } else if (can_keep(gradient, weights_[parameter])) {
    sum = std::move(gradient);
  } else {
    sum = at::empty_like(weights_[parameter].detach()).copy_(gradient);
  }
}

}  // namespace pp::model
