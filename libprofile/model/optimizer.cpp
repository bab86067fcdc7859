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
      const bool first = state_.empty();
      if (first) {
        for (const std::string& name : slot_names()) {
          state_.push_back({name});
          for (const at::Tensor& weight : weights)
            state_.back().tensors.push_back(at::empty_like(weight.detach()));
        }
      }
      const at::TensorList momenta = state_.empty() ? at::TensorList() : state_.front().tensors;
      at::_fused_sgd_(list(weights), list(gradients), momenta, options_.weight_decay, options_.momentum,
                      learning_rate, options_.dampening, options_.nesterov, /*maximize=*/false,
                      /*is_first_step=*/first);
    });
  }

  double state_ratio() const override { return options_.momentum != 0.0 ? 1.0 : 0.0; }
  /// None without momentum: the kernel demands it.
  std::vector<std::string> slot_names() const override {
    if (options_.momentum == 0.0) return {};
    return {"momentum_buffer"};
  }

 private:
  SgdOptions options_;
};

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options) : options_(options) {}

  void step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients,
            double learning_rate) override {
    guarded_step(weights, gradients, [&] {
      if (state_.empty()) make_state(weights);
      const Tensors &means = state_[0].tensors, &squares = state_[1].tensors, &steps = state_[2].tensors;
      for (const at::Tensor& step : steps) step.add_(1);  // the kernel expects the number of this step
      at::_fused_adamw_(list(weights), list(gradients), means, squares, /*max_exp_avg_sqs=*/{}, steps,
                        learning_rate, options_.beta1, options_.beta2, options_.weight_decay, options_.epsilon,
                        /*amsgrad=*/false,
                        /*maximize=*/false);
    });
  }

  double state_ratio() const override { return 2.0; }
  std::vector<std::string> slot_names() const override { return {"exp_avg", "exp_avg_sq", "step"}; }

 private:
  // Steps are float32 scalars, one per weight, as the kernel wants them.
  void make_state(std::span<const at::Tensor> weights) {
    for (const std::string& name : slot_names()) state_.push_back({name});
    for (const at::Tensor& weight : weights) {
      state_[0].tensors.push_back(at::zeros_like(weight.detach()));
      state_[1].tensors.push_back(at::zeros_like(weight.detach()));
      state_[2].tensors.push_back(at::zeros({}, weight.options().dtype(at::kFloat).requires_grad(false)));
    }
  }

  AdamWOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) { return std::make_unique<Sgd>(options); }
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) { return std::make_unique<AdamW>(options); }

}  // namespace pp::model
