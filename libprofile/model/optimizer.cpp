#include "libprofile/model/optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <string>

#include "libprofile/model/errors.h"

namespace pp::model {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The fused kernels walk raw memory: another layout would give wrong numbers without an error (libtorch.md
/// 10).
void check(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients) {
  const auto fail = [](const std::string& message) { throw Error(ErrorKind::internal, message); };
  if (weights.size() != gradients.size()) {
    fail("got " + std::to_string(gradients.size()) + " gradients for " + std::to_string(weights.size()) +
         " weights");
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::string which = "weight " + std::to_string(i);
    if (!gradients[i].defined()) fail(which + " has no gradient");
    if (gradients[i].scalar_type() != weights[i].scalar_type())
      fail(which + " and its gradient differ in dtype");
    if (gradients[i].sizes() != weights[i].sizes() || gradients[i].strides() != weights[i].strides()) {
      fail(which + " and its gradient differ in shape or strides");
    }
    if (!weights[i].is_non_overlapping_and_dense()) fail(which + " is not dense");
  }
}

at::TensorList list(std::span<const at::Tensor> tensors) { return {tensors.data(), tensors.size()}; }

/// What the optimizers share: checks, no gradient tracking, errors of LibTorch. An empty set of weights is left
/// alone.
template <class Update>
void guarded_step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients, Update&& update) {
  if (weights.empty() && gradients.empty()) return;
  const c10::AutoGradMode no_grad(false);
  detail::guarded([] { return std::string("optimizer"); },
                  [&] {
                    check(weights, gradients);
                    update();
                  });
}

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options) : options_(options) {}

  void step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients,
            double learning_rate) override {
    guarded_step(weights, gradients, [&] {
      const bool first = momenta_.empty();
      if (first && options_.momentum != 0.0) {
        for (const at::Tensor& weight : weights) momenta_.push_back(at::empty_like(weight.detach()));
      }
      at::_fused_sgd_(list(weights), list(gradients), momenta_, options_.weight_decay, options_.momentum,
                      learning_rate, options_.dampening, options_.nesterov, /*maximize=*/false,
                      /*is_first_step=*/first);
    });
  }

  double state_ratio() const override { return options_.momentum != 0.0 ? 1.0 : 0.0; }
  Tensors state() const override { return momenta_; }

 private:
  SgdOptions options_;
  Tensors momenta_;  ///< empty without momentum: the kernel demands it
};

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options) : options_(options) {}

  void step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients,
            double learning_rate) override {
    guarded_step(weights, gradients, [&] {
      if (steps_.empty()) make_state(weights);
      for (at::Tensor& step : steps_) step.add_(1);  // the kernel expects the number of this step
      at::_fused_adamw_(list(weights), list(gradients), means_, squares_, /*max_exp_avg_sqs=*/{}, steps_,
                        learning_rate, options_.beta1, options_.beta2, options_.weight_decay, options_.epsilon,
                        /*amsgrad=*/false,
                        /*maximize=*/false);
    });
  }

  double state_ratio() const override { return 2.0; }

  /// Means, squares, steps.
  Tensors state() const override {
    Tensors all = means_;
    all.insert(all.end(), squares_.begin(), squares_.end());
    all.insert(all.end(), steps_.begin(), steps_.end());
    return all;
  }

 private:
  void make_state(std::span<const at::Tensor> weights) {
    for (const at::Tensor& weight : weights) {
      means_.push_back(at::zeros_like(weight.detach()));
      squares_.push_back(at::zeros_like(weight.detach()));
      steps_.push_back(at::zeros({}, weight.options().dtype(at::kFloat).requires_grad(false)));
    }
  }

  AdamWOptions options_;
  Tensors means_, squares_;
  Tensors steps_;  ///< float32 scalars, one per weight, as the kernel wants them
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) { return std::make_unique<Sgd>(options); }
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) { return std::make_unique<AdamW>(options); }

}  // namespace pp::model
