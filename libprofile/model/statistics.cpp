#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <vector>

#include "libprofile/model/segment.h"

namespace pp::model {
namespace {

/// Values per channel.
double values_of(std::span<const BatchStatistics> parts) {
  double n = 0;
  for (const BatchStatistics& part : parts) n += static_cast<double>(part.count);
  return n;
}

/// The same as below in plain loops: a layer's few channels are not worth twenty calls of LibTorch, which take
/// longer than the optimizer's step.
template <class T>
void commit_on_host(const NormStatistics& of) {
  const auto& [in_order, norm, buffers] = of;
  const double n = values_of(in_order);
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

bool all_on_host(const NormStatistics& of, at::ScalarType type) {
  return std::ranges::all_of(of.buffers, [&](const at::Tensor& t) { return on_host(t, type); }) &&
         std::ranges::all_of(of.in_order, [&](const BatchStatistics& part) {
           return on_host(part.mean, type) && on_host(part.inverse_deviation, type);
         });
}

/// Norms whose numbers are the same but for the values, so that one call of LibTorch computes for all of their
/// channels. A GPU would otherwise wait for the host: of ResNet-50's 53 norms, whose statistics take it no
/// time, a step's update took 12 ms on an H200.
struct Together {
  std::vector<double> shares;  ///< of the micro-batches
  std::vector<const NormStatistics*> norms;

  explicit Together(const NormStatistics& first) : shares(shares_of(first)), norms{&first} {}
  bool takes(const NormStatistics& of) const {
    const NormStatistics& mine = *norms.front();
    return of.norm.eps == mine.norm.eps && of.norm.momentum == mine.norm.momentum &&
           of.in_order.front().mean.options().type_equal(mine.in_order.front().mean.options()) &&
           shares_of(of) == shares;
  }

 private:
  static std::vector<double> shares_of(const NormStatistics& of) {
    const double n = values_of(of.in_order);
    std::vector<double> shares;
    for (const BatchStatistics& part : of.in_order) shares.push_back(static_cast<double>(part.count) / n);
    return shares;
  }
};

/// [channels of all] in double precision.
at::Tensor joined(const Together& all, std::size_t part, at::Tensor BatchStatistics::*which) {
  std::vector<at::Tensor> tensors;
  for (const NormStatistics* of : all.norms) tensors.push_back(of->in_order[part].*which);
  return at::cat(tensors).to(at::kDouble);
}

void blend(const Together& all, std::size_t buffer, const std::vector<at::Tensor>& batch) {
  std::vector<at::Tensor> running;
  for (const NormStatistics* of : all.norms) running.push_back(of->buffers[buffer]);
  const double momentum = all.norms.front()->norm.momentum;
  at::_foreach_mul_(running, 1.0 - momentum);
  at::_foreach_add_(running, batch, momentum);
}

void commit_on_device(const Together& all) {
  const double eps = all.norms.front()->norm.eps;
  at::Tensor mean, square;
  for (std::size_t i = 0; i < all.shares.size(); ++i) {
    const at::Tensor m = joined(all, i, &BatchStatistics::mean);
    const at::Tensor s =
        joined(all, i, &BatchStatistics::inverse_deviation).pow_(-2).sub_(eps).add_(m.square());
    mean = i == 0 ? m.mul(all.shares[i]) : mean.add_(m, all.shares[i]);
    square = i == 0 ? s.mul(all.shares[i]) : square.add_(s, all.shares[i]);
  }
  std::vector<std::int64_t> channels;
  std::vector<at::Scalar> unbiased;
  for (const NormStatistics* of : all.norms) {
    const double n = values_of(of->in_order);
    channels.push_back(of->in_order.front().mean.numel());
    unbiased.emplace_back(n / (n - 1.0));
  }
  const at::ScalarType type = all.norms.front()->buffers[0].scalar_type();
  std::vector<at::Tensor> variances = square.sub_(mean.square()).clamp_min_(0.0).split_with_sizes(channels);
  at::_foreach_mul_(variances, unbiased);
  blend(all, 0, mean.to(type).split_with_sizes(channels));
  blend(all, 1, square.to(type).split_with_sizes(channels));
}

}  // namespace

void commit_statistics(std::span<const NormStatistics> norms) {
  const c10::AutoGradMode no_grad(false);
  std::vector<Together> groups;
  for (const NormStatistics& of : norms) {
    if (of.in_order.empty()) continue;
    if (all_on_host(of, at::kFloat)) {
      commit_on_host<float>(of);
    } else if (all_on_host(of, at::kDouble)) {
      commit_on_host<double>(of);
    } else if (const auto group = std::ranges::find_if(groups, [&](const Together& g) { return g.takes(of); });
               group != groups.end()) {
      group->norms.push_back(&of);
    } else {
      groups.emplace_back(of);
    }
  }
  for (const Together& group : groups) commit_on_device(group);
}

}  // namespace pp::model
