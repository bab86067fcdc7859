#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "libprofile/model/segment.h"

namespace pp::model {
namespace {

/// The same as below in plain loops: a layer's few channels are not worth twenty calls of LibTorch, which take
/// longer than the optimizer's step.
template <class T>
void commit_on_host(std::span<const BatchStatistics> in_order, const BatchNorm& norm,
                    std::span<at::Tensor> buffers) {
  double n = 0;
  for (const BatchStatistics& part : in_order) n += static_cast<double>(part.count);
  T* const running_mean = buffers[0].mutable_data_ptr<T>();
  T* const running_variance = buffers[1].mutable_data_ptr<T>();
  const auto blend = [&](T& running, double batch) {
    running = static_cast<T>((1 - norm.momentum) * running + norm.momentum * batch);
  };
  for (std::int64_t c = 0; c < in_order.front().mean.numel(); ++c) {
    double mean = 0, square = 0;
    for (const BatchStatistics& part : in_order) {
      const double share = static_cast<double>(part.count) / n;
      const double m = part.mean.const_data_ptr<T>()[c], i = part.inverse_deviation.const_data_ptr<T>()[c];
      mean += m * share;
      square += (1 / (i * i) - norm.eps + m * m) * share;
    }
    blend(running_mean[c], mean);
    blend(running_variance[c], std::max(square - mean * mean, 0.0) * (n / (n - 1)));
  }
}

bool on_host(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.is_cpu() && tensor.scalar_type() == type && tensor.is_contiguous();
}

bool all_on_host(std::span<const BatchStatistics> parts, std::span<at::Tensor> buffers, at::ScalarType type) {
  return std::ranges::all_of(buffers, [&](const at::Tensor& t) { return on_host(t, type); }) &&
         std::ranges::all_of(parts, [&](const BatchStatistics& part) {
           return on_host(part.mean, type) && on_host(part.inverse_deviation, type);
         });
}

}  // namespace

void commit_statistics(std::span<const BatchStatistics> in_order, const BatchNorm& norm,
                       std::span<at::Tensor> buffers) {
  if (in_order.empty()) return;
  if (all_on_host(in_order, buffers, at::kFloat)) return commit_on_host<float>(in_order, norm, buffers);
  if (all_on_host(in_order, buffers, at::kDouble)) return commit_on_host<double>(in_order, norm, buffers);
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
