// The state of an optimizer, and its steps over all weights, over those of a rule, or over pieces.
#include "libprofile/model/optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
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

}  // namespace

Optimizer::Optimizer(OptimizerName name, const OptimizerSettings& given, double weight_decay)
    : name_(name),
      settings_(settings_of(name, given)),
      weight_decay_(weight_decay),
      slots_(slots_of(name, given)) {}

std::vector<std::string> Optimizer::slot_names() const {
  std::vector<std::string> names;
  for (const OptimizerSlotRow& slot : slots_) names.emplace_back(slot.name);
  return names;
}

detail::OptimizerUpdate Optimizer::all(std::span<const at::Tensor> weights,
                                       std::span<const at::Tensor> gradients, double rate) const {
  return {list(weights), list(gradients), state_, settings_, weight_decay_, rate, steps_};
}

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
    Update of = all(weights, gradients, learning_rate);
    of.first = first;
    by_rules(of, before, [&](const Update& some, std::span<const at::Tensor> from) {
      if (from.empty()) return detail::arithmetic_of(name_).step(some);
      update_copies(some, from);
    });
  });
}

template <class Part>
void Optimizer::by_rules(const Update& all, std::span<const at::Tensor> before, const Part& part) const {
  if (rules_.empty()) return part(all, before);
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
    part(Update{weights, gradients, slots, settings_, rule.decays ? all.decay : 0.0,
                rule.rate_factor * all.rate, all.steps, all.first},
         from);
  }
}

// A device that works on whole tensors at once has nothing from pieces.
void Optimizer::update_copies(const Update& all, std::span<const at::Tensor> before) const {
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
    detail::arithmetic_of(name_).step(
        {weights, gradients, slots, settings_, all.decay, all.rate, all.steps, all.first});
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
  for (const OptimizerSlotRow& row : slots_) {
    OptimizerSlot& slot = state_.emplace_back(OptimizerSlot{std::string(row.name)});
    for (const at::Tensor& weight : weights) {
      slot.tensors.push_back(row.name == "step" ? at::zeros({}, weight.detach().options().dtype(at::kFloat))
                                                : at::zeros_like(weight.detach()));
    }
  }
}

void Optimizer::predict(std::span<const at::Tensor> weights, std::span<const at::Tensor> predicted,
                        double distance) const {
  guarded_step(predicted, weights, [&] {
    at::_foreach_copy_(list(predicted), list(weights));
    if (!has_direction(name_, settings_) || state_.empty() || distance == 0.0) return;
    by_rules(all(predicted, {}, distance), {}, [&](const Update& of, std::span<const at::Tensor> /*before*/) {
      if (of.rate != 0.0) detail::arithmetic_of(name_).go_on(of);
    });
  });
}

}  // namespace pp::model
