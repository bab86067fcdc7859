// Forwards alone: a plan's stages as a pipeline that computes the model's outputs. Apps include this header; it
// is free of Torch.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "librun/execution.h"
#include "librun/infer/report.h"

namespace pp::run {

struct InferOptions : ExecutionOptions {
  std::filesystem::path outputs;  ///< safetensors: the model's outputs by name, a row for each sample
  std::string subset;   ///< of a folder: `training` or `test`; empty: test where there is one, else training
  int micro_batch = 0;  ///< samples of a pass; 0: the plan's largest micro-batch
  bool draw_weights = false;  ///< from the seed, instead of `initial_weights`
};

/// Called on the calling thread.
class InferObserver {
 public:
  virtual ~InferObserver() = default;
  virtual void progress(const InferProgress& progress) = 0;
  virtual void warning(std::string_view text) = 0;
};

/// Writes the outputs of all samples. Everything that can be found before work starts is: plan, data, weights,
/// devices; throws pp::Error (data, usage, device). `interrupted` is polled all the time: true ends the run
/// after the passes that have begun, and nothing is written. Fails as run() does.
InferReport infer(
    const plan::Plan& plan, const InferOptions& options, InferObserver& observer,
    const std::function<bool()>& interrupted = [] { return false; });

}  // namespace pp::run
