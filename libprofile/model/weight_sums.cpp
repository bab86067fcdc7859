#include "libprofile/model/weight_sums.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <utility>

#include "libprofile/model/sole_owner.h"

namespace pp::model {
namespace {

/// Nobody else sees the storage, and it looks like `weight`.
bool can_keep(const at::Tensor& gradient, const at::Tensor& weight) {
  return is_sole_owner(gradient) && !gradient.requires_grad() && gradient.strides() == weight.strides() &&
         gradient.storage().nbytes() == gradient.nbytes();
}

/// [rows, ...] -> [rows, all others]
at::Tensor by_row(const at::Tensor& sum) { return sum.view({sum.size(0), -1}); }

}  // namespace

bool WeightSums::wants_any() const {
  return std::ranges::any_of(weights_, [](const at::Tensor& weight) { return weight.requires_grad(); });
}

void WeightSums::add(std::size_t parameter, at::Tensor gradient) {
  if (!gradient.defined() || !wants(parameter)) return;
  at::Tensor& sum = sums_[parameter];
  if (sum.defined()) {
    sum.add_(gradient);
  } else if (places_.empty() && can_keep(gradient, weights_[parameter])) {
    sum = std::move(gradient);
  } else {
    sum = place(parameter).copy_(gradient);
  }
}

void WeightSums::add_product(std::size_t parameter, const at::Tensor& left, const at::Tensor& right) {
  if (!wants(parameter)) return;
  at::Tensor& sum = sums_[parameter];
  if (sum.defined()) {
    by_row(sum).addmm_(left, right);
  } else {
    sum = place(parameter);
    at::Tensor rows = by_row(sum);
    at::mm_out(rows, left, right);
  }
}

at::Tensor WeightSums::place(std::size_t parameter) const {
  return places_.empty() ? at::empty_like(weights_[parameter].detach()) : places_[parameter];
}

}  // namespace pp::model
