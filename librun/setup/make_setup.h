// All checks before a training, with LibTorch's word on the model.
#pragma once

#include <optional>

#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/options/run_options.h"
#include "librun/setup/setup.h"

namespace pp::run {

/// Everything that run.h promises for check(), for the workers that are here, with LibTorch's word on the
/// model's calls of it. `found`: as for find_start(). Throws pp::Error.
Setup make_setup(const plan::Plan& plan, const RunOptions& options, const Placement& placement = {},
                 const std::optional<FoundCheckpoint>& found = std::nullopt);

}  // namespace pp::run
