#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <vector>

#include "libprofile/model/segment.h"

namespace pp::model {

namespace {

/// [micro-batches, channels] float64
at::Tensor in_double(const std::vector<at::Tensor>& parts) { return at::stack(parts).to(at::kDouble); }

}  // namespace

void commit_statistics(std::span<const BatchStatistics> in_order, const BatchNorm& norm,
                       std::span<at::Tensor> buffers) {
  if (in_order.empty()) return;
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> means, inverse_deviations;
  at::Tensor share = at::empty({static_cast<std::int64_t>(in_order.size()), 1}, at::kDouble);
  double n = 0;
  for (const BatchStatistics& part : in_order) {
    share.mutable_data_ptr<double>()[means.size()] = static_cast<double>(part.count);
    n += static_cast<double>(part.count);
    means.push_back(part.mean);
    inverse_deviations.push_back(part.inverse_deviation);
  }
  const at::Tensor part_means = in_double(means);
  const at::Tensor part_squares = in_double(inverse_deviations).pow(-2).sub(norm.eps).add(part_means.square());
  share = share.div(n).to(part_means.device());
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
