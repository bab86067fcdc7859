// The plan's optimizer with the run's settings, ready to step.
#pragma once

#include <memory>

#include "libprofile/model/optimizer.h"
#include "librun/options/optimizer_settings.h"

namespace pp::run {

std::unique_ptr<model::Optimizer> make_optimizer(plan::OptimizerName name, const RunOptions& options);

}  // namespace pp::run
