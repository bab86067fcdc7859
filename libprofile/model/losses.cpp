#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include <algorithm>
#include <array>

#include "libprofile/model/ops.h"

namespace pp::model {
namespace {

// Prediction [n, ..., classes], target [n, ...] of class numbers; the mean over samples and positions.
at::Tensor cross_entropy(const Attributes& /*attributes*/, const at::Tensor& prediction,
                         const at::Tensor& target) {
  return at::cross_entropy_loss(prediction.flatten(0, -2), target.flatten().to(at::kLong));
}

// Prediction and target of one shape; the mean over all elements.
at::Tensor mse(const Attributes& /*attributes*/, const at::Tensor& prediction, const at::Tensor& target) {
  return at::mse_loss(prediction, target.to(prediction.scalar_type()));
}

struct Row {
  std::string_view name;
  LossForward forward;
};
constexpr std::array kTable{Row{"cross_entropy", cross_entropy}, Row{"mse", mse}};

}  // namespace

LossForward find_loss_forward(std::string_view loss) {
  const auto row = std::find_if(kTable.begin(), kTable.end(), [&](const Row& r) { return r.name == loss; });
  return row == kTable.end() ? nullptr : row->forward;
}

std::vector<std::string_view> loss_forward_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kTable) names.push_back(row.name);
  return names;
}

}  // namespace pp::model
