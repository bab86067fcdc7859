// SGD, Adam, AdamW, RMSprop and Adagrad: a function each, and one that goes on in the direction of the state.
#include "libprofile/model/optimizer_updates.h"

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

#include <algorithm>
#include <cmath>

namespace pp::model::detail {
namespace {

using Update = OptimizerUpdate;
using OwnedTensors = std::vector<at::Tensor>;

/// LibTorch 2.11's fused kernel leaves bfloat16 weights as they are on a CPU, all but the last few, and reads
/// their momenta as float32 (pytorch/pytorch#191763).
void sgd_unfused(const Update& of, at::TensorList momenta) {
  OwnedTensors slopes = of.gradients.vec();
  if (of.decay != 0.0) slopes = at::_foreach_add(slopes, of.weights, of.decay);
  if (!momenta.empty()) {
    if (of.first) {
      at::_foreach_copy_(momenta, slopes);
    } else {
      at::_foreach_mul_(momenta, of["momentum"]);
      at::_foreach_add_(momenta, slopes, 1);
    }
    slopes = of["nesterov"] != 0.0 ? at::_foreach_add(slopes, momenta, of["momentum"]) : momenta.vec();
  }
  at::_foreach_add_(of.weights, slopes, -of.rate);
}

void sgd(const Update& of) {
  const at::TensorList momenta = of.state.empty() ? at::TensorList() : of.state.front().tensors;
  if (const at::Tensor& one = of.weights.front(); one.is_cpu() && at::isReducedFloatingType(one.scalar_type()))
    return sgd_unfused(of, momenta);
  at::_fused_sgd_(of.weights, of.gradients, momenta, of.decay, of["momentum"], of.rate, /*dampening=*/0,
                  of["nesterov"] != 0.0, /*maximize=*/false,
                  /*is_first_step=*/of.first && !momenta.empty());  // without, LibTorch says that it ignores it
}

/// sgd and rmsprop.
void along_momentum(const Update& of) { at::_foreach_add_(of.weights, of.state.back().tensors, -of.rate); }

template <class Kernel>
void adam_by(const Update& of, const Kernel& kernel) {
  kernel(of.weights, of.gradients, of.state[0].tensors, of.state[1].tensors,
         /*max_exp_avg_sqs=*/at::TensorList(), of.state[2].tensors, of.rate, of["beta1"], of["beta2"], of.decay,
         of["epsilon"], /*amsgrad=*/false, /*maximize=*/false);
}

/// Along the corrected means.
void adam_go_on(const Update& of) {
  const OwnedTensors roots = at::_foreach_sqrt(of.state[1].tensors);
  at::_foreach_div_(roots, std::sqrt(1 - std::pow(of["beta2"], of.steps)));
  at::_foreach_add_(roots, of["epsilon"]);
  at::_foreach_addcdiv_(of.weights, of.state[0].tensors, roots,
                        -of.rate / (1 - std::pow(of["beta1"], of.steps)));
}

void adamw_go_on(const Update& of) {
  at::_foreach_mul_(of.weights, 1 - of.rate * of.decay);
  adam_go_on(of);
}

/// There is no fused kernel for it.
void rmsprop(const Update& of) {
  OwnedTensors decayed;
  if (of.decay != 0.0) decayed = at::_foreach_add(of.gradients, of.weights, of.decay);
  const at::TensorList slopes = decayed.empty() ? of.gradients : at::TensorList(decayed);
  const OwnedTensors& squares = of.state[0].tensors;
  at::_foreach_mul_(squares, of["alpha"]);
  at::_foreach_addcmul_(squares, slopes, slopes, 1 - of["alpha"]);
  const OwnedTensors roots = at::_foreach_sqrt(squares);
  at::_foreach_add_(roots, of["epsilon"]);
  if (of["momentum"] == 0.0) {
    at::_foreach_addcdiv_(of.weights, slopes, roots, -of.rate);
    return;
  }
  const OwnedTensors& momenta = of.state[1].tensors;
  at::_foreach_mul_(momenta, of["momentum"]);
  at::_foreach_addcdiv_(momenta, slopes, roots, 1);
  at::_foreach_add_(of.weights, momenta, -of.rate);
}

void adagrad(const Update& of) {
  at::_fused_adagrad_(of.weights, of.gradients, of.state[0].tensors, of.state[1].tensors, of.rate,
                      of["lr_decay"], of.decay, of["epsilon"], /*maximize=*/false);
}

constexpr std::array kArithmetic{
    OptimizerArithmetic{OptimizerName::sgd, sgd, along_momentum},
    OptimizerArithmetic{
        OptimizerName::adam,
        [](const Update& of) { adam_by(of, [](const auto&... all) { at::_fused_adam_(all...); }); },
        adam_go_on},
    OptimizerArithmetic{
        OptimizerName::adamw,
        [](const Update& of) { adam_by(of, [](const auto&... all) { at::_fused_adamw_(all...); }); },
        adamw_go_on},
    OptimizerArithmetic{OptimizerName::rmsprop, rmsprop, along_momentum},
    OptimizerArithmetic{OptimizerName::adagrad, adagrad}};
static_assert(kArithmetic.size() == kOptimizerRows.size());

}  // namespace

const OptimizerArithmetic& arithmetic_of(OptimizerName name) {
  return *std::ranges::find(kArithmetic, name, &OptimizerArithmetic::name);
}

}  // namespace pp::model::detail
