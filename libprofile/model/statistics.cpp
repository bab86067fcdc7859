#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include "libprofile/model/segment.h"

namespace pp::model {

void commit_statistics(std::span<const BatchStatistics> in_order, const BatchNorm& norm,
                       std::span<at::Tensor> buffers) {
  if (in_order.empty()) return;
  const c10::AutoGradMode no_grad(false);
  const at::TensorOptions wide = in_order.front().mean.options().dtype(at::kDouble);
  const std::int64_t parts = static_cast<std::int64_t>(in_order.size());
  at::Tensor part_means = at::empty({parts, in_order.front().mean.numel()}, wide);
  at::Tensor inverse_deviations = at::empty_like(part_means);
  at::Tensor share = at::empty({parts, 1}, at::kDouble);
  double n = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const BatchStatistics& part = in_order[static_cast<std::size_t>(i)];
    part_means[i].copy_(part.mean);
    inverse_deviations[i].copy_(part.inverse_deviation);
    n += share.mutable_data_ptr<double>()[i] = static_cast<double>(part.count);
  }
  share = share.div(n).to(wide.device());
  const at::Tensor part_squares = inverse_deviations.pow(-2).sub(norm.eps).add(part_means.square());
  const at::Tensor mean = part_means.mul(share).sum(0);
  const at::Tensor variance =
      part_squares.mul(share).sum(0).sub(mean.square()).clamp_min(0.0).mul(n / (n - 1.0));
  const auto blend = [&](at::Tensor& running, const at::Tensor& batch) {
    running.mul_(1.0 - norm.momentum).add_(batch.to(running.scalar_type()), norm.momentum);
  };
  blend(buffers[0], mean);
  blend(buffers[1], variance);
}

}  // namespace pp::model
