#include "libprofile/model/gradient_sums.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <utility>

namespace pp::model {

namespace {

/// Nobody else sees the storage, and it looks like `weight`.
bool can_keep(const at::Tensor& gradient, const at::Tensor& weight) {
  return is_sole_owner(gradient) && !gradient.requires_grad() && gradient.strides() == weight.strides() &&
         gradient.storage().nbytes() == gradient.nbytes();
}

/// [rows, ...] -> [rows, all others]
at::Tensor by_row(const at::Tensor& sum) { return sum.view({sum.size(0), -1}); }

/// Sums may be wider than the weights (float32 sums of half gradients). What is made or cast for them is of few
/// rows at a time, so that it needs little memory: part(rows of `sum`, the first one, how many).
template <class Part>
void by_few_rows(const at::Tensor& sum, const Part& part) {
  constexpr std::int64_t kElements = 1 << 16;
  const std::int64_t rows = sum.size(0);
  const std::int64_t most =
      std::max<std::int64_t>(1, kElements * rows / std::max<std::int64_t>(1, sum.numel()));
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(most, rows - first);
    part(sum.narrow(0, first, count), first, count);
  }
}

}  // namespace

bool WeightSums::wants_any() const {
  return std::ranges::any_of(weights_, [](const at::Tensor& weight) { return weight.requires_grad(); });
}

void WeightSums::add(std::size_t parameter, at::Tensor gradient) {
  if (!gradient.defined() || !wants(parameter)) return;
  at::Tensor& sum = sums_[parameter];
  if (sum.defined() && sum.dim() > 0 && sum.scalar_type() != gradient.scalar_type()) {
    by_few_rows(sum, [&](const at::Tensor& rows, std::int64_t first, std::int64_t count) {
      rows.add_(gradient.narrow(0, first, count));
    });
  } else if (sum.defined()) {
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
  if (!places_.empty() && places_[parameter].scalar_type() != left.scalar_type()) {
    const bool first_time = !std::exchange(sum, places_[parameter]).defined();
    by_few_rows(by_row(sum), [&](const at::Tensor& rows, std::int64_t first, std::int64_t count) {
      const at::Tensor product = at::mm(left.narrow(0, first, count), right);
      first_time ? rows.copy_(product) : rows.add_(product);
    });
  } else if (sum.defined()) {
    by_row(sum).addmm_(left, right);
  } else {
    sum = place(parameter);
    at::Tensor rows = by_row(sum);
    at::mm_out(rows, left, right);
  }
}

void WeightSums::add_product(std::size_t parameter, std::int64_t part, const at::Tensor& left,
                             const at::Tensor& right) {
  if (!wants(parameter)) return;
  at::Tensor& sum = sums_[parameter];
  if (!sum.defined()) sum = place(parameter).zero_();
  const at::Tensor own = sum[part];
  if (own.scalar_type() == left.scalar_type()) {
    own.addmm_(left, right);
    return;
  }
  by_few_rows(own, [&](const at::Tensor& rows, std::int64_t first, std::int64_t count) {
    rows.add_(at::mm(left.narrow(0, first, count), right));
  });
}

at::Tensor WeightSums::place(std::size_t parameter) const {
  return places_.empty() ? at::empty_like(weights_[parameter].detach()) : places_[parameter];
}

}  // namespace pp::model

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
