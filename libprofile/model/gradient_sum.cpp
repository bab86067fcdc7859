#include "libprofile/model/gradient_sum.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "libprofile/model/sole_owner.h"

namespace pp::model::detail {

void GradientSum::add(const at::Tensor& gradient) {
  if (!sum_.defined()) {
    sum_ = gradient;
  } else if (is_sole_owner(sum_)) {
    sum_.add_(gradient);
  } else {
    at::Tensor both = at::empty_like(sum_);
    sum_ = at::add_out(both, sum_, gradient);
  }
}

at::Tensor GradientSum::take() { return std::exchange(sum_, at::Tensor()); }

}  // namespace pp::model::detail
