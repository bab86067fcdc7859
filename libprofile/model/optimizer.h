// Optimizer updates on plain tensors, as torch.optim defines them: SGD, Adam, AdamW, RMSprop, Adagrad.
// The one file that calls ATen's fused kernels, and checks the layouts they silently rely on.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pp::model {

struct SgdOptions {
  double momentum = 0.0;
  double weight_decay = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
};
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  ///< Adam: added to the gradient; AdamW: taken off the weights
};
struct RmspropOptions {
  double alpha = 0.99;  ///< of the mean of squares
  double epsilon = 1e-8;
  double momentum = 0.0;
  double weight_decay = 0.0;
};
struct AdagradOptions {
  double lr_decay = 0.0;
  double epsilon = 1e-10;
  double weight_decay = 0.0;
};

/// One kind of state, a tensor per weight. Named as in torch.optim: `momentum_buffer`, `exp_avg`, `exp_avg_sq`,
/// `square_avg`, `sum`, `step`.
struct OptimizerSlot {
  std::string name;
  std::vector<at::Tensor> tensors = {};
};

/// How a weight departs from the others, as torch.optim's parameter groups say it.
struct WeightRule {
  double rate_factor = 1;  ///< times the learning rate; 0: the weight stays, its state goes on
  bool decays = true;      ///< false: no weight decay
  auto operator<=>(const WeightRule&) const = default;
};

/// State tensors are made at the first step and belong to the newest weights. One object per stage replica.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Updates `weights` in place, without gradient tracking. With `before`, they become what the update makes of
  /// those, whatever they held: on one thread the same bits as of a copy that is then updated, but by pieces
  /// that stay in a core's cache in between, so that memory is passed over once. Throws pp::Error (internal)
  /// unless each gradient, and each of `before`, has the dtype and strides of its weight.
  void step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients, double learning_rate,
            std::span<const at::Tensor> before = {});
  /// Bytes of state per byte of parameters: SGD 0 or 1, Adam and AdamW 2, RMSprop 1 or 2, Adagrad 1.
  virtual double state_ratio() const = 0;
  /// The kinds of state that it has from the first step on.
  virtual std::vector<std::string> slot_names() const = 0;

  /// Whether its state says which way it goes: adam and adamw, sgd and rmsprop with momentum.
  virtual bool has_direction() const { return false; }
  /// Into `predicted` the weights as they are after a way of `distance`, a sum of learning rates, in the
  /// direction of the state: sgd and rmsprop along the momentum, adam along its corrected means, adamw with the
  /// decay besides. Before the first step, and without a direction: the weights.
  void predict(std::span<const at::Tensor> weights, std::span<const at::Tensor> predicted,
               double distance) const;

  /// One per weight, for all calls that follow; none: no weight departs.
  void set_rules(std::vector<WeightRule> rules) { rules_ = std::move(rules); }
  const std::vector<WeightRule>& rules() const { return rules_; }

  /// In the order of slot_names(); empty before the first step. References.
  const std::vector<OptimizerSlot>& state() const { return state_; }
  /// Goes on from such a state, which it takes over; none: from the beginning. Waits for the device that has
  /// it.
  void set_state(std::vector<OptimizerSlot> state);

 protected:
  /// Entry i of each list belongs together: a weight and its gradient and state, or a part of each of them in
  /// the order of memory (`step` is a number, and never in parts).
  struct Update {
    at::TensorList weights, gradients;
    c10::ArrayRef<OptimizerSlot> state;
    bool decays = true;
  };
  /// Changes weights and state in place; the numbers of steps count this one already. `first`: no step was
  /// before.
  virtual void update(const Update& of, double learning_rate, bool first) const = 0;
  /// Takes the weights on that way; there are no gradients, and there is a state.
  virtual void go_on(const Update& /*of*/, double /*distance*/) const {}
  /// Zeros; `step` is a float32 scalar per weight, as the fused kernels want it.
  void make_state(std::span<const at::Tensor> weights);

  /// That its state has seen, `step` where there is such a slot: known without asking a device.
  double steps() const { return steps_; }

  std::vector<OptimizerSlot> state_;

 private:
  /// Calls part(of, before, factor) for all weights, or for those of each rule.
  template <class Part>
  void by_rules(const Update& all, std::span<const at::Tensor> before, const Part& part) const;
  void update_copies(const Update& all, std::span<const at::Tensor> before, double learning_rate,
                     bool first) const;

  std::vector<WeightRule> rules_;
  double steps_ = 0;
};

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options);
std::unique_ptr<Optimizer> make_adam(const AdamOptions& options);
std::unique_ptr<Optimizer> make_adamw(const AdamOptions& options);
std::unique_ptr<Optimizer> make_rmsprop(const RmspropOptions& options);
std::unique_ptr<Optimizer> make_adagrad(const AdagradOptions& options);

}  // namespace pp::model
