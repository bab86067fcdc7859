// The plan's optimizer with the run's settings: which of them it has, and their defaults.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "libplan/plan.h"
#include "libprofile/model/optimizer.h"
#include "librun/run.h"

namespace pp::run {

/// Every setting of the optimizer but learning rate and weight decay, by its name in RunOptions: what is given,
/// else the default. Throws pp::Error (usage) for a value out of range and for a given setting that this
/// optimizer does not have.
std::vector<std::pair<std::string_view, double>> optimizer_settings(plan::OptimizerName name,
                                                                    const RunOptions& options);

std::unique_ptr<model::Optimizer> make_optimizer(plan::OptimizerName name, const RunOptions& options);

}  // namespace pp::run
