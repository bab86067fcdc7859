#include "libprofile/model/optimizer.h"

#include <ATen/Parallel.h>
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

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>

#include "libprofile/model/errors.h"

namespace pp::model {
namespace {

using OwnedTensors = std::vector<at::Tensor>;

/// The fused kernels walk raw memory: another layout would give wrong numbers without an error. `what` the
/// others are: `gradient`.
void check(std::span<const at::Tensor> weights, std::span<const at::Tensor> others, std::string_view what) {
  const auto fail = [](const std::string& message) { throw Error(ErrorKind::internal, message); };
  if (weights.size() != others.size()) {
    fail("got " + std::to_string(others.size()) + " " + std::string(what) + "s for " +
         std::to_string(weights.size()) + " weights");
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto fail_weight = [&](const std::string& fault) { fail("weight " + std::to_string(i) + fault); };
    const auto differ = [&](const std::string& in) {
      fail_weight(" and its " + std::string(what) + " differ in " + in);
    };
    if (!others[i].defined()) fail_weight(" has no " + std::string(what));
    if (others[i].scalar_type() != weights[i].scalar_type()) differ("dtype");
    if (others[i].sizes() != weights[i].sizes() || others[i].strides() != weights[i].strides())
      differ("shape or strides");
    if (!weights[i].is_non_overlapping_and_dense()) fail_weight(" is not dense");
  }
}

/// So many bytes of weights per thread are copied and updated at a time: with as much of each of what an update
/// reads they fit a core's own cache.
constexpr std::int64_t kPieceBytes = 1 << 18;
/// A part begins at a multiple of this, so that a kernel's vectors are those of the whole tensor: same bits.
constexpr std::int64_t kPartMultiple = 64;

std::int64_t piece_elements(std::size_t element_size) {
  return kPieceBytes / static_cast<std::int64_t>(element_size) * at::get_num_threads();
}

/// Elements [begin, end) of a dense tensor in the order of memory.
at::Tensor part(const at::Tensor& tensor, std::int64_t begin, std::int64_t end) {
  return tensor.as_strided({end - begin}, {1}, tensor.storage_offset() + begin);
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
                    check(weights, gradients, "gradient");
                    update();
                  });
}

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options) : options_(options) {}

  double state_ratio() const override { return options_.momentum != 0.0 ? 1.0 : 0.0; }
  /// None without momentum: the kernel demands it.
  std::vector<std::string> slot_names() const override {
    if (options_.momentum == 0.0) return {};
    return {"momentum_buffer"};
  }
  bool has_direction() const override { return options_.momentum != 0.0; }

 private:
  void update(const Update& of, double learning_rate, bool first) const override {
    const at::TensorList momenta = of.state.empty() ? at::TensorList() : of.state.front().tensors;
    if (const at::Tensor& one = of.weights.front();
        one.is_cpu() && at::isReducedFloatingType(one.scalar_type()))
      return update_unfused(of, momenta, learning_rate, first);
    at::_fused_sgd_(of.weights, of.gradients, momenta, decay(of), options_.momentum, learning_rate,
                    options_.dampening, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/first && !momenta.empty());  // without, LibTorch says that it ignores it
  }
  /// LibTorch 2.11's fused kernel leaves bfloat16 weights as they are on a CPU, all but the last few, and reads
  /// their momenta as float32 (pytorch/pytorch#191763).
  void update_unfused(const Update& of, at::TensorList momenta, double learning_rate, bool first) const {
    OwnedTensors slopes = of.gradients.vec();
    if (decay(of) != 0.0) slopes = at::_foreach_add(slopes, of.weights, decay(of));
    if (!momenta.empty()) {
      if (first) {
        at::_foreach_copy_(momenta, slopes);
      } else {
        at::_foreach_mul_(momenta, options_.momentum);
        at::_foreach_add_(momenta, slopes, 1 - options_.dampening);
      }
      slopes = options_.nesterov ? at::_foreach_add(slopes, momenta, options_.momentum) : momenta.vec();
    }
    at::_foreach_add_(of.weights, slopes, -learning_rate);
  }
  void go_on(const Update& of, double distance) const override {
    at::_foreach_add_(of.weights, of.state[0].tensors, -distance);
  }
  double decay(const Update& of) const { return of.decays ? options_.weight_decay : 0.0; }

  SgdOptions options_;
};

enum class Decay { added_to_gradient, decoupled };

class Adam final : public Optimizer {
 public:
  Adam(const AdamOptions& options, Decay decay) : options_(options), decay_(decay) {}

  double state_ratio() const override { return 2.0; }
  std::vector<std::string> slot_names() const override { return {"exp_avg", "exp_avg_sq", "step"}; }
  bool has_direction() const override { return true; }

 private:
  void update(const Update& of, double learning_rate, bool /*first*/) const override {
    const auto kernel = [&](auto&& fused) {
      fused(of.weights, of.gradients, of.state[0].tensors, of.state[1].tensors,
            /*max_exp_avg_sqs=*/at::TensorList(), of.state[2].tensors, learning_rate, options_.beta1,
            options_.beta2, decay(of), options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
    };
    if (decay_ == Decay::decoupled) {
      kernel([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      kernel([](const auto&... arguments) { at::_fused_adam_(arguments...); });
    }
  }
  void go_on(const Update& of, double distance) const override {
    const OwnedTensors roots = at::_foreach_sqrt(of.state[1].tensors);
    at::_foreach_div_(roots, std::sqrt(1 - std::pow(options_.beta2, steps())));
    at::_foreach_add_(roots, options_.epsilon);
    if (decay_ == Decay::decoupled) at::_foreach_mul_(of.weights, 1 - distance * decay(of));
    at::_foreach_addcdiv_(of.weights, of.state[0].tensors, roots,
                          -distance / (1 - std::pow(options_.beta1, steps())));
  }
  double decay(const Update& of) const { return of.decays ? options_.weight_decay : 0.0; }

  AdamOptions options_;
  Decay decay_;
};

/// There is no fused kernel for it.
class Rmsprop final : public Optimizer {
 public:
  explicit Rmsprop(const RmspropOptions& options) : options_(options) {}

  double state_ratio() const override { return options_.momentum == 0.0 ? 1.0 : 2.0; }
  std::vector<std::string> slot_names() const override {
    if (options_.momentum == 0.0) return {"square_avg"};
    return {"square_avg", "momentum_buffer"};
  }
  bool has_direction() const override { return options_.momentum != 0.0; }

 private:
  void update(const Update& of, double learning_rate, bool /*first*/) const override {
    OwnedTensors decayed;
    if (decay(of) != 0.0) decayed = at::_foreach_add(of.gradients, of.weights, decay(of));
    const at::TensorList slopes = decayed.empty() ? of.gradients : at::TensorList(decayed);
    const OwnedTensors& squares = of.state[0].tensors;
    at::_foreach_mul_(squares, options_.alpha);
    at::_foreach_addcmul_(squares, slopes, slopes, 1 - options_.alpha);
    const OwnedTensors roots = at::_foreach_sqrt(squares);
    at::_foreach_add_(roots, options_.epsilon);
    if (options_.momentum == 0.0) {
      at::_foreach_addcdiv_(of.weights, slopes, roots, -learning_rate);
      return;
    }
    const OwnedTensors& momenta = of.state[1].tensors;
    at::_foreach_mul_(momenta, options_.momentum);
    at::_foreach_addcdiv_(momenta, slopes, roots, 1);
    at::_foreach_add_(of.weights, momenta, -learning_rate);
  }
  void go_on(const Update& of, double distance) const override {
    at::_foreach_add_(of.weights, of.state[1].tensors, -distance);
  }
  double decay(const Update& of) const { return of.decays ? options_.weight_decay : 0.0; }

  RmspropOptions options_;
};

class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(const AdagradOptions& options) : options_(options) {}

  double state_ratio() const override { return 1.0; }
  std::vector<std::string> slot_names() const override { return {"sum", "step"}; }

 private:
  void update(const Update& of, double learning_rate, bool /*first*/) const override {
    at::_fused_adagrad_(of.weights, of.gradients, of.state[0].tensors, of.state[1].tensors, learning_rate,
                        options_.lr_decay, of.decays ? options_.weight_decay : 0.0, options_.epsilon,
                        /*maximize=*/false);
  }

  AdagradOptions options_;
};

}  // namespace

void Optimizer::step(std::span<const at::Tensor> weights, std::span<const at::Tensor> gradients,
                     double learning_rate, std::span<const at::Tensor> before) {
  guarded_step(weights, gradients, [&] {
    if (!before.empty()) check(weights, before, "weight before");
    const bool first = state_.empty();
    if (first) make_state(weights);
    ++steps_;
    for (const OptimizerSlot& slot : state_) {
      if (slot.name == "step") at::_foreach_add_(slot.tensors, 1);
    }
    by_rules({list(weights), list(gradients), state_}, before,
             [&](const Update& of, std::span<const at::Tensor> from, double factor) {
               if (from.empty()) return update(of, factor * learning_rate, first);
               update_copies(of, from, factor * learning_rate, first);
             });
  });
}

template <class Part>
void Optimizer::by_rules(const Update& all, std::span<const at::Tensor> before, const Part& part) const {
  if (rules_.empty()) return part(all, before, 1.0);
  if (rules_.size() != all.weights.size())
    throw Error(ErrorKind::internal, "got " + std::to_string(rules_.size()) + " rules for " +
                                         std::to_string(all.weights.size()) + " weights");
  for (const WeightRule& rule : std::set<WeightRule>(rules_.begin(), rules_.end())) {
    OwnedTensors weights, gradients, from;
    std::vector<OptimizerSlot> slots;
    for (const OptimizerSlot& slot : all.state) slots.push_back({slot.name});
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i] != rule) continue;
      weights.push_back(all.weights[i]);
      if (!all.gradients.empty()) gradients.push_back(all.gradients[i]);
      if (!before.empty()) from.push_back(before[i]);
      for (std::size_t s = 0; s < slots.size(); ++s) slots[s].tensors.push_back(all.state[s].tensors[i]);
    }
    part(Update{weights, gradients, slots, rule.decays}, from, rule.rate_factor);
  }
}

// A device that works on whole tensors at once has nothing from pieces.
void Optimizer::update_copies(const Update& all, std::span<const at::Tensor> before, double learning_rate,
                              bool first) const {
  const std::int64_t most = all.weights.front().is_cpu() ? piece_elements(all.weights.front().itemsize())
                                                         : std::numeric_limits<std::int64_t>::max();
  OwnedTensors copied, weights, gradients;
  std::vector<OptimizerSlot> slots;
  std::int64_t room = most;
  const auto begin_piece = [&] {
    for (OwnedTensors* tensors : {&copied, &weights, &gradients}) tensors->clear();
    slots.clear();
    for (const OptimizerSlot& slot : all.state) slots.push_back({slot.name});
    room = most;
  };
  const auto end_piece = [&] {
    at::_foreach_copy_(weights, copied);
    update({weights, gradients, slots, all.decays}, learning_rate, first);
    begin_piece();
  };
  const auto add = [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    copied.push_back(part(before[i], begin, end));
    weights.push_back(part(all.weights[i], begin, end));
    gradients.push_back(part(all.gradients[i], begin, end));
    for (std::size_t s = 0; s < all.state.size(); ++s) {
      const at::Tensor& state = all.state[s].tensors[i];
      slots[s].tensors.push_back(all.state[s].name == "step" ? state : part(state, begin, end));
    }
    room -= (end - begin + kPartMultiple - 1) / kPartMultiple * kPartMultiple;
  };
  begin_piece();
  for (std::size_t i = 0; i < all.weights.size(); ++i) {
    const std::int64_t size = all.weights[i].numel();
    for (std::int64_t begin = 0, end = 0; begin < size; begin = end) {
      end = room < size - begin ? begin + room : size;
      add(i, begin, end);
      if (room <= 0) end_piece();
    }
  }
  if (!copied.empty()) end_piece();
}

void Optimizer::set_state(std::vector<OptimizerSlot> state) {
  state_ = std::move(state);
  steps_ = 0;
  for (const OptimizerSlot& slot : state_) {
    if (slot.name == "step" && !slot.tensors.empty()) steps_ = slot.tensors.front().item<double>();
  }
}

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
    if (!has_direction() || state_.empty() || distance == 0.0) return;
    by_rules({list(predicted), {}, state_}, {},
             [&](const Update& of, std::span<const at::Tensor> /*before*/, double factor) {
               if (factor != 0.0) go_on(of, factor * distance);
             });
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
