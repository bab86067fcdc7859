// An optimizer that steps: its state, the rules of single weights, and the checks of layouts. What each
// optimizer computes: optimizer_updates.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/model/optimizer_updates.h"

namespace pp::model {

/// How a weight departs from the others, as torch.optim's parameter groups say it.
struct WeightRule {
  double rate_factor = 1;  ///< times the learning rate; 0: the weight stays, its state goes on
  bool decays = true;      ///< false: no weight decay
  auto operator<=>(const WeightRule&) const = default;
};

/// State tensors are made at the first step and belong to the newest weights. One object per stage replica.
class Optimizer {
 public:
  /// Throws pp::Error (usage) as settings_of() does.
  explicit Optimizer(OptimizerName name, const OptimizerSettings& given = {}, double weight_decay = 0);

  /// Updates `weights` in place, without gradient tracking. With `before`, they become what the update makes of
  /// those, whatever they held: on one thread the same bits as of a copy that is then updated, but by pieces
  /// that stay in a core's cache in between, so that memory is passed over once. Throws pp::Error (internal)
  /// unless each gradient, and each of `before`, has the dtype and strides of its weight.
  void step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients, double learning_rate,
            std::span<const at::Tensor> before = {});
  /// Into `predicted` the weights as they are after a way of `distance`, a sum of learning rates, in the
  /// direction of the state: sgd and rmsprop along the momentum, adam along its corrected means, adamw with the
  /// decay besides. Before the first step, and without a direction: the weights.
  void predict(std::span<const at::Tensor> weights, std::span<const at::Tensor> predicted,
               double distance) const;

  /// One per weight, for all calls that follow; none: no weight departs.
  void set_rules(std::vector<WeightRule> rules) { rules_ = std::move(rules); }
  const std::vector<WeightRule>& rules() const { return rules_; }

  /// The kinds of state that it has from the first step on.
  std::vector<std::string> slot_names() const;
  /// In the order of slot_names(); empty before the first step. References.
  const std::vector<OptimizerSlot>& state() const { return state_; }
  /// Goes on from such a state, which it takes over; none: from the beginning. Waits for the device that has
  /// it.
  void set_state(std::vector<OptimizerSlot> state);

 private:
  using Update = detail::OptimizerUpdate;
  Update all(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients, double rate) const;
  /// Zeros; `step` is a float32 scalar per weight, as the fused kernels want it.
  void make_state(std::span<const at::Tensor> weights);
  /// Calls part(of, before) for all weights, or for those of each rule.
  template <class Part>
  void by_rules(const Update& all, std::span<const at::Tensor> before, const Part& part) const;
  void update_copies(const Update& all, std::span<const at::Tensor> before) const;

  OptimizerName name_;
  OptimizerSettings settings_;  ///< all of its
  double weight_decay_;
  std::vector<OptimizerSlotRow> slots_;
  std::vector<OptimizerSlot> state_;
  std::vector<WeightRule> rules_;
  double steps_ =
      0;  ///< that its state has seen, `step` where there is such a slot: known without asking a device
};

}  // namespace pp::model
