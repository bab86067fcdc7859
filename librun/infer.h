// Forwards alone: a plan's stages as a pipeline that computes the model's outputs. Apps include this header; it
// is free of Torch.
#pragma once

#include <functional>

#include "libplan/plan/plan.h"
#include "librun/infer/options.h"
#include "librun/infer/report.h"

namespace pp::run {

/// Writes the outputs of all samples. Everything that can be found before work starts is: plan, data, weights,
/// devices; throws pp::Error (data, usage, device). `interrupted` is polled all the time: true ends the run
/// after the passes that have begun, and nothing is written. Fails as run() does.
InferReport infer(
    const plan::Plan& plan, const InferOptions& options, InferObserver& observer,
    const std::function<bool()>& interrupted = [] { return false; });

}  // namespace pp::run
