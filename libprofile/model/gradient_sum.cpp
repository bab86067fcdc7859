#include "libprofile/model/gradient_sum.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

#include <utility>

namespace pp::model::detail {

void GradientSum::add(const at::Tensor& gradient) {
  if (!sum_.defined()) {
    sum_ = gradient;
  } else if (owned_) {
    sum_.add_(gradient);
  } else {
    at::Tensor both = at::empty_like(sum_);
    sum_ = at::add_out(both, sum_, gradient);
    owned_ = true;
  }
}

at::Tensor GradientSum::take() {
  owned_ = false;
  return std::exchange(sum_, at::Tensor());
}

}  // namespace pp::model::detail
