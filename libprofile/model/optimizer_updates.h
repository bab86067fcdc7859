// The arithmetic of each optimizer on plain tensors, as torch.optim defines it. The one place that calls ATen's
// fused kernels for it; Optimizer checks the layouts that they silently rely on.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "libprofile/core/optimizer_table.h"

namespace pp::model {

/// One kind of state, a tensor per weight. Its name: OptimizerSlotRow.
struct OptimizerSlot {
  std::string name;
  std::vector<at::Tensor> tensors = {};
};

namespace detail {

/// Entry i of each list belongs together: a weight and its gradient and state, or a part of each of them in the
/// order of memory (`step` is a number, and never in parts).
struct OptimizerUpdate {
  at::TensorList weights, gradients;
  c10::ArrayRef<OptimizerSlot> state;
  const OptimizerSettings& settings;  ///< all of settings_of()
  double decay = 0;                   ///< of the weights
  double rate = 0;                    ///< learning rate; of a prediction the way, a sum of learning rates
  double steps = 1;                   ///< this one included; counted where there is a slot `step`
  bool first = false;                 ///< no step was before

  double operator[](std::string_view name) const { return *settings.find(name)->second; }
};

/// A row of every OptimizerRow.
struct OptimizerArithmetic {
  OptimizerName name;
  void (*step)(const OptimizerUpdate&);             ///< changes weights and state in place
  void (*go_on)(const OptimizerUpdate&) = nullptr;  ///< weights along the state's direction; without gradients
};
const OptimizerArithmetic& arithmetic_of(OptimizerName name);

}  // namespace detail
}  // namespace pp::model
