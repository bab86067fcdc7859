#include "libprofile/model/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <string>

#include "libprofile/model/errors.h"

namespace pp::model {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The fused kernels walk raw memory: another layout would give wrong numbers without an error.
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
      if (first) make_state(weights);
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
  bool has_direction() const override { return options_.momentum != 0.0; }

 private:
  void go_on(std::span<const at::Tensor> weights, double distance) const override {
    at::_foreach_add_(list(weights), state_[0].tensors, -distance);
  }

  SgdOptions options_;
};

enum class Decay { added_to_gradient, decoupled };

class Adam final : public Optimizer {
 public:
  Adam(const AdamOptions& options, Decay decay) : options_(options), decay_(decay) {}

  void step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients,
            double learning_rate) override {
    guarded_step(weights, gradients, [&] {
      if (state_.empty()) make_state(weights);
      const Tensors &means = state_[0].tensors, &squares = state_[1].tensors, &steps = state_[2].tensors;
      at::_foreach_add_(steps, 1);  // the kernel expects the number of this step
      const auto kernel = [&](auto&& fused) {
        fused(list(weights), list(gradients), means, squares, /*max_exp_avg_sqs=*/at::TensorList(), steps,
              learning_rate, options_.beta1, options_.beta2, options_.weight_decay, options_.epsilon,
              /*amsgrad=*/false, /*maximize=*/false);
      };
      if (decay_ == Decay::decoupled) {
        kernel([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
      } else {
        kernel([](const auto&... arguments) { at::_fused_adam_(arguments...); });
      }
    });
  }

  double state_ratio() const override { return 2.0; }
  std::vector<std::string> slot_names() const override { return {"exp_avg", "exp_avg_sq", "step"}; }
  bool has_direction() const override { return true; }

 private:
  void go_on(std::span<const at::Tensor> weights, double distance) const override {
    const double steps = state_[2].tensors.front().item<double>();
    const Tensors roots = at::_foreach_sqrt(state_[1].tensors);
    at::_foreach_div_(roots, std::sqrt(1 - std::pow(options_.beta2, steps)));
    at::_foreach_add_(roots, options_.epsilon);
    if (decay_ == Decay::decoupled) at::_foreach_mul_(list(weights), 1 - distance * options_.weight_decay);
    at::_foreach_addcdiv_(list(weights), state_[0].tensors, roots,
                          -distance / (1 - std::pow(options_.beta1, steps)));
  }

  AdamOptions options_;
  Decay decay_;
};

/// There is no fused kernel for it.
class Rmsprop final : public Optimizer {
 public:
  explicit Rmsprop(const RmspropOptions& options) : options_(options) {}

  void step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients,
            double learning_rate) override {
    guarded_step(weights, gradients, [&] {
      if (state_.empty()) make_state(weights);
      Tensors decayed;
      if (options_.weight_decay != 0.0)
        decayed = at::_foreach_add(list(gradients), list(weights), options_.weight_decay);
      const at::TensorList slopes = decayed.empty() ? list(gradients) : at::TensorList(decayed);
      const Tensors& squares = state_[0].tensors;
      at::_foreach_mul_(squares, options_.alpha);
      at::_foreach_addcmul_(squares, slopes, slopes, 1 - options_.alpha);
      const Tensors roots = at::_foreach_sqrt(squares);
      at::_foreach_add_(roots, options_.epsilon);
      if (options_.momentum == 0.0) {
        at::_foreach_addcdiv_(list(weights), slopes, roots, -learning_rate);
        return;
      }
      const Tensors& momenta = state_[1].tensors;
      at::_foreach_mul_(momenta, options_.momentum);
      at::_foreach_addcdiv_(momenta, slopes, roots, 1);
      at::_foreach_add_(list(weights), momenta, -learning_rate);
    });
  }

  double state_ratio() const override { return options_.momentum == 0.0 ? 1.0 : 2.0; }
  std::vector<std::string> slot_names() const override {
    if (options_.momentum == 0.0) return {"square_avg"};
    return {"square_avg", "momentum_buffer"};
  }
  bool has_direction() const override { return options_.momentum != 0.0; }

 private:
  void go_on(std::span<const at::Tensor> weights, double distance) const override {
    at::_foreach_add_(list(weights), state_[1].tensors, -distance);
  }

  RmspropOptions options_;
};

class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(const AdagradOptions& options) : options_(options) {}

  void step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients,
            double learning_rate) override {
    guarded_step(weights, gradients, [&] {
      if (state_.empty()) make_state(weights);
      const Tensors &sums = state_[0].tensors, &steps = state_[1].tensors;
      at::_foreach_add_(steps, 1);
      at::_fused_adagrad_(list(weights), list(gradients), sums, steps, learning_rate, options_.lr_decay,
                          options_.weight_decay, options_.epsilon, /*maximize=*/false);
    });
  }

  double state_ratio() const override { return 1.0; }
  std::vector<std::string> slot_names() const override { return {"sum", "step"}; }

 private:
  AdagradOptions options_;
};

}  // namespace

void Optimizer::make_state(std::span<const at::Tensor> weights) {
  for (const std::string& name : slot_names()) {
    OptimizerSlot& slot = state_.emplace_back(OptimizerSlot{name});
    for (const at::Tensor& weight : weights) {
      slot.tensors.push_back(name == "step" ? at::zeros({}, weight.detach().options().dtype(at::kFloat))
                                            : at::zeros_like(weight.detach()));
    }
  }
}

void Optimizer::predict(std::span<const at::Tensor> weights, std::span<const at::Tensor> predicted,
                        double distance) const {
  guarded_step(predicted, weights, [&] {
    at::_foreach_copy_(list(predicted), list(weights));
    if (has_direction() && !state_.empty() && distance != 0.0) go_on(predicted, distance);
  });
}

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) { return std::make_unique<Sgd>(options); }
std::unique_ptr<Optimizer> make_adam(const AdamOptions& options) {
  return std::make_unique<Adam>(options, Decay::added_to_gradient);
}
std::unique_ptr<Optimizer> make_adamw(const AdamOptions& options) {
  return std::make_unique<Adam>(options, Decay::decoupled);
}
std::unique_ptr<Optimizer> make_rmsprop(const RmspropOptions& options) {
  return std::make_unique<Rmsprop>(options);
}
std::unique_ptr<Optimizer> make_adagrad(const AdagradOptions& options) {
  return std::make_unique<Adagrad>(options);
}

}  // namespace pp::model
