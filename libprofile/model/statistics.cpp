#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "libprofile/model/segment.h"

namespace pp::model {

void commit_statistics(std::span<const BatchStatistics> in_order, double momentum,
                       std::span<at::Tensor> buffers) {
  if (in_order.empty()) return;
  const c10::AutoGradMode no_grad(false);
  std::int64_t count = 0;
  at::Tensor sum = at::zeros_like(in_order.front().sum);
  at::Tensor square_sum = at::zeros_like(sum);
  for (const BatchStatistics& part : in_order) {
    count += part.count;
    sum.add_(part.sum);
    square_sum.add_(part.square_sum);
  }
  const double n = static_cast<double>(count);
  const at::Tensor mean = sum.div(n);
  const at::Tensor variance = square_sum.div(n).sub(mean.square()).clamp_min(0.0).mul(n / (n - 1.0));
  const auto blend = [&](at::Tensor& running, const at::Tensor& batch) {
    running.mul_(1.0 - momentum).add_(batch.to(running.scalar_type()), momentum);
  };
  blend(buffers[0], mean);
  blend(buffers[1], variance);
}

}  // namespace pp::model
