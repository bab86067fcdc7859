// Optimizer updates on plain tensors: SGD with momentum and weight decay, AdamW, as torch.optim defines them.
// The one file that calls ATen's fused kernels, and checks the layouts they silently rely on.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

namespace pp::model {

struct SgdOptions {
  double momentum = 0.0;
  double weight_decay = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
};
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

/// State tensors are made at the first step and belong to the newest weights. One object per stage replica.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Updates `weights` in place, without gradient tracking. Throws pp::Error (internal) unless each gradient
  /// has the dtype and strides of its weight.
  virtual void step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients,
                    double learning_rate) = 0;
  /// Bytes of state per byte of parameters: SGD 0 or 1, AdamW 2.
  virtual double state_ratio() const = 0;
  /// Tensors of the state in a fixed order, for checkpoints; empty before the first step.
  virtual std::vector<at::Tensor> state() const = 0;
};

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options);
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options);

}  // namespace pp::model
