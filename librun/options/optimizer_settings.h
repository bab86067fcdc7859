// The plan's optimizer with the run's settings: which of them it has, their defaults, and what it keeps.
// Torch-free.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libplan/plan/plan.h"
#include "librun/options/run_options.h"

namespace pp::run {

/// Every setting of the optimizer but learning rate and weight decay, by its name in RunOptions: what is given,
/// else the default. Throws pp::Error (usage) for a value out of range and for a given setting that this
/// optimizer does not have.
std::vector<std::pair<std::string_view, double>> optimizer_settings(plan::OptimizerName name,
                                                                    const RunOptions& options);

/// What model::Optimizer says of itself.
struct OptimizerState {
  std::vector<std::string> slots;
  double ratio = 0;            ///< bytes of state per byte of parameters
  bool has_direction = false;  ///< whether it says which way the weights go
};
OptimizerState optimizer_state(plan::OptimizerName name, const RunOptions& options);

}  // namespace pp::run
