#include "libprofile/model/gradient_sum.h"

#include <ATen/ops/empty_like.h>

#include <utility>

namespace pp::model::detail {
namespace {

/// Nobody else sees the storage, and it looks like `weight`.
bool can_keep(const at::Tensor& gradient, const at::Tensor& weight) {
  return gradient.use_count() == 1 && gradient.storage().use_count() == 1 && !gradient.requires_grad() &&
         gradient.strides() == weight.strides() && gradient.storage().nbytes() == gradient.nbytes();
}

}  // namespace

void GradientSum::add(const at::Tensor& gradient) {
  if (!sum_.defined()) {
    sum_ = gradient;
  } else if (owned_) {
    sum_.add_(gradient);
  } else {
    sum_ = sum_.add(gradient);
    owned_ = true;
  }
}

at::Tensor GradientSum::take() {
  owned_ = false;
  return std::exchange(sum_, at::Tensor());
}

void accumulate(at::Tensor& buffer, const at::Tensor& place, const at::Tensor& weight, at::Tensor gradient) {
  if (!gradient.defined()) return;
  if (buffer.defined()) {
    buffer.add_(gradient);
  } else if (place.defined()) {
    buffer = place;
    buffer.copy_(gradient);
  } else if (can_keep(gradient, weight)) {
    buffer = std::move(gradient);
  } else {
    buffer = at::empty_like(weight.detach()).copy_(gradient);
  }
}

}  // namespace pp::model::detail
