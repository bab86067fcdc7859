// All checks before a training, with LibTorch's word on the model.
#pragma once

#include "librun/options/run_options.h"
#include "librun/setup/setup.h"

namespace pp::run {

/// Everything that run.h promises for check(), for the workers that are here, with LibTorch's word on the
/// model's calls of it. Throws pp::Error.
Setup make_setup(const plan::Plan& plan, const RunOptions& options, const Placement& placement = {});

}  // namespace pp::run
